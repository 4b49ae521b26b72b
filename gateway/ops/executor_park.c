/* The park: requests that met a lock wait here without occupying a thread. Of all requests for the same name,
 * one is tried a few times a second, and the others wait behind it. */
#include "gateway/ops/executor_park.h"

#include "core/base/clock.h"
#include "core/base/share.h"
#include "gateway/ops/api_guard.h"
#include <stdlib.h>

#define PARK_MAX                                                                                             \
    ((size_t)6 * 1024 * 1024)           /* bytes of bodies; beyond, the caller with the most is evicted      \
                                         */
#define REQUEST_SIZE ((size_t)4 * 1024) /* what one counts beside its body */
#define PAUSE_FIRST_MS 20
#define PAUSE_MAX_MS 250
#define PATIENCE_MS 3000 /* how long one may wait */

static bool asks_for(const struct api_request *r, uint64_t name)
{
    return name != 0 && (r->names[0] == name || r->names[1] == name);
}

/* In the order in which they are tried; those behind it come with it. */
static void insert_head(struct executor_park *p, struct api_request *r, int64_t retry_at_ms)
{
    struct api_request **at = &p->first;
    r->retry_at_ms = retry_at_ms;
    while (*at != NULL && (*at)->retry_at_ms <= retry_at_ms)
        at = &(*at)->next;
    r->next = *at;
    *at = r;
}

static void begin_waiting(struct api_request *r)
{
    if (r->give_up_ms == 0)
        r->give_up_ms = clock_monotonic_ms() + PATIENCE_MS;
}

static size_t size_of(const struct api_request *r)
{
    return REQUEST_SIZE + r->body.len;
}

static void count_in(struct executor_park *p, const struct api_request *r)
{
    p->count++;
    p->bytes += size_of(r);
}

static void count_out(struct executor_park *p, const struct api_request *r)
{
    p->count--;
    p->bytes -= size_of(r);
}

/* The request that gives way to r; NULL: r itself. */
static struct api_request *find_largest(const struct executor_park *p, const struct api_request *r)
{
    struct share *list = calloc(p->count, sizeof *list);
    size_t n = 0;
    for (struct api_request *head = p->first; head != NULL && list != NULL; head = head->next)
        for (struct api_request *x = head; x != NULL; x = x == head ? head->behind : x->next)
            list[n++] =
                (struct share){.what = x, .caller = x->caller, .amount = size_of(x), .since = x->give_up_ms};
    const struct share *found = list != NULL ? share_find(list, n, r->caller, size_of(r)) : NULL;
    struct api_request *x = found != NULL ? found->what : NULL;
    free(list);
    return x;
}

/* Removes a request, parked itself or behind another one; those behind it stay. */
static void take_out(struct executor_park *p, const struct api_request *r)
{
    for (struct api_request **at = &p->first; *at != NULL; at = &(*at)->next) {
        struct api_request **x = *at == r ? at : &(*at)->behind;
        while (*x != NULL && *x != r)
            x = &(*x)->next;
        if (*x == NULL)
            continue;
        *x = r->next;
        count_out(p, r);
        return;
    }
}

static void refuse(struct api_request *r)
{
    api_fail(&r->answer, API_OVERLOADED,
             "the gateway has too many requests that wait for locks, and most of them are from this caller");
}

/* False: it is r itself that gives way. */
static bool make_room(struct executor_park *p, struct api_request *r)
{
    while (p->count > 0 && p->bytes + size_of(r) > PARK_MAX) {
        struct api_request *x = find_largest(p, r);
        if (x == NULL) {
            refuse(r);
            return false;
        }
        take_out(p, x);
        refuse(x);
        executor_park_answer(p, x, true, true);
    }
    return true;
}

/* The one that r goes behind. */
static struct api_request *find_head(const struct executor_park *p, const struct api_request *r)
{
    struct api_request *head = p->first;
    while (head != NULL && !asks_for(r, head->held))
        head = head->next;
    return head;
}

enum executor_parked executor_park_follow(struct executor_park *p, struct api_request *r)
{
    struct api_request *head = find_head(p, r);
    if (head == NULL)
        return EXECUTOR_PARK_NOT;
    if (!make_room(p, r))
        return EXECUTOR_PARK_REFUSED;
    if (head != find_head(p, r)) /* it gave way */
        return executor_park_follow(p, r);
    begin_waiting(r);
    r->next = NULL;
    struct api_request **end = &head->behind;
    while (*end != NULL)
        end = &(*end)->next;
    *end = r;
    count_in(p, r);
    return EXECUTOR_PARK_WAITS;
}

enum executor_parked executor_park_put(struct executor_park *p, struct api_request *r, uint64_t held)
{
    begin_waiting(r);
    int64_t now_ms = clock_monotonic_ms();
    if (now_ms >= r->give_up_ms)
        return EXECUTOR_PARK_REFUSED;
    if (r->behind == NULL && !make_room(p, r))
        return EXECUTOR_PARK_REFUSED;
    r->pause_ms = r->pause_ms == 0 ? PAUSE_FIRST_MS : r->pause_ms * 2;
    if (r->pause_ms > PAUSE_MAX_MS)
        r->pause_ms = PAUSE_MAX_MS;
    r->held = held;
    insert_head(p, r, now_ms + r->pause_ms);
    count_in(p, r);
    return EXECUTOR_PARK_WAITS;
}

void executor_park_at_once(struct executor_park *p, struct api_request *r)
{
    insert_head(p, r, 0);
    count_in(p, r);
}

struct api_request *executor_park_take(struct executor_park *p)
{
    struct api_request *r = p->first;
    if (r == NULL || r->retry_at_ms > clock_monotonic_ms())
        return NULL;
    p->first = r->next;
    count_out(p, r);
    return r;
}

/* The next one behind it is tried in its place. Returns those (by next) that have waited as long, with the
 * same answer. */
static struct api_request *take_behind(struct executor_park *p, struct api_request *r, bool locked)
{
    int64_t now_ms = clock_monotonic_ms();
    struct api_request *expired = NULL, **end = &expired, *head = r->behind;
    r->behind = NULL;
    for (; head != NULL && locked && now_ms >= head->give_up_ms;) {
        count_out(p, head);
        /* The same refusal for one that has waited as long. */
        head->answer.status = r->answer.status;
        head->answer.problem = r->answer.problem;
        head->answer.retry_after_s = r->answer.retry_after_s;
        buf_reset(&head->answer.body);
        buf_put_bytes(&head->answer.body, buf_bytes(&r->answer.body));
        *end = head;
        end = &head->next;
        head = head->next;
    }
    *end = NULL;
    if (head == NULL)
        return expired;
    head->behind = head->next;
    head->held = r->held;
    insert_head(p, head, locked ? now_ms + PAUSE_MAX_MS : 0);
    return expired;
}

void executor_park_answer(struct executor_park *p, struct api_request *r, bool locked, bool idle)
{
    struct api_request *same = take_behind(p, r, locked), *next;
    if (api_is_change(r, idle))
        api_audit(r);
    r->done(r);
    for (; same != NULL; same = next) {
        next = same->next;
        same->done(same);
    }
}

int64_t executor_park_pause_ms(const struct executor_park *p, int64_t most_ms)
{
    if (p->first == NULL)
        return most_ms;
    int64_t pause_ms = p->first->retry_at_ms - clock_monotonic_ms();
    return pause_ms < 0 ? 0 : pause_ms < most_ms ? pause_ms : most_ms;
}
