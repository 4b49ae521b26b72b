/* Which requests share a transaction: those that came, in their order, but
 *
 *   - a large one has it for itself, and one of the threads never takes one: the small ones of others do not
 *     wait for its bytes;
 *   - of those with the same key, or the same Idempotency-Key, one: the second must see the first's result;
 *   - a batch with keys has no other keys beside it;
 *   - what asks for something that a parked request waits for goes behind that one.
 *
 * What did not fit comes first the next time. In turns with the groups, a parked request is tried alone: what
 * meets a lock costs those who meet none no more than that. */
#include "core/base/clock.h"
#include "core/base/hash.h"
#include "gateway/api/group/group_commit.h"
#include "gateway/runtime/startup.h"

#define IDLE_MS 500
#define NEXT_MAX ((size_t)1024 * 1024) /* bytes that wait for the next group; all others wait in turns */

static uint64_t hash_two(const char *a, struct bytes b)
{
    static const uint8_t key[SIPHASH_KEY_SIZE] = "postdate member";
    return (siphash(key, bytes_of_str(a)) * 31 + siphash(key, b)) | 1;
}

/* The key of a single message; 0: none. */
static uint64_t key_hash(const struct group_commit *s, const struct api_schedule *q)
{
    const struct store_item *items = s->scheduler.items;
    const struct message *m = &items[q->first_item].message;
    static const uint8_t key[SIPHASH_KEY_SIZE] = "postdate key";
    if (q->batch || q->item_count != 1 || m->key.len == 0)
        return 0;
    return (siphash(key, m->exchange) * 31 + siphash(key, m->key)) | 1;
}

static bool has_keys(const struct group_commit *s, const struct api_schedule *q)
{
    const struct store_item *items = s->scheduler.items;
    for (size_t i = q->first_item; i < q->first_item + q->item_count; i++)
        if (items[i].message.key.len > 0)
            return true;
    return false;
}

static bool is_large(const struct api_request *r)
{
    return r->body.len > EXECUTOR_SMALL_BODY;
}

/* As far as its names are known. */
static bool fits_group(const struct group_commit *s, const struct api_request *r)
{
    if ((r->alone || is_large(r)) && s->count > 0)
        return false;
    for (size_t i = 0; i < s->count; i++) {
        const struct api_request *other = s->group[i].schedule.request;
        for (int k = 0; k < 2; k++)
            if (r->names[k] != 0 && r->names[k] == other->names[k])
                return false;
        if (r->names[0] != 0 && other->alone)
            return false;
    }
    return true;
}

bool group_commit_add(struct group_commit *s, struct api_request *r)
{
    struct member *m = &s->group[s->count];
    if (!fits_group(s, r))
        return false;
    *m = (struct member){0};
    if (api_schedule_parse(&s->scheduler, r, &m->schedule) != 0) {
        executor_park_answer(&s->park, r, false, false);
        return true;
    }
    r->names[0] = key_hash(s, &m->schedule);
    r->alone = m->schedule.batch && has_keys(s, &m->schedule);
    if (r->idempotency_key.len > 0) {
        m->idempotency.principal = bytes_of_str(api_principal(r));
        m->idempotency.key = r->idempotency_key;
        r->names[1] = hash_two(api_principal(r), r->idempotency_key);
        api_once_hash(r, m->idempotency.body_hash);
    }
    if (!fits_group(s, r)) {
        s->scheduler.count = m->schedule.first_item;
        return false;
    }
    /* Its names were not known before it was read. */
    enum executor_parked parked = s->trying ? EXECUTOR_PARK_NOT : executor_park_follow(&s->park, r);
    if (parked == EXECUTOR_PARK_NOT) {
        s->count++;
        return true;
    }
    s->scheduler.count = m->schedule.first_item;
    if (parked == EXECUTOR_PARK_REFUSED)
        executor_park_answer(&s->park, r, true, false);
    return true;
}

static void put_next(struct group_commit *s, struct api_request *r)
{
    r->next = NULL;
    *s->next_end = r;
    s->next_end = &r->next;
    s->next_bytes += r->body.len;
}

static bool is_full(const struct group_commit *s)
{
    return s->count == GROUP_MAX || !api_scheduler_has_room(&s->scheduler) ||
           (s->count > 0 && is_large(s->group[0].schedule.request));
}

/* Goes once through what did not fit before. Batches with keys have every other group only. */
static void add_next(struct group_commit *s)
{
    struct api_request *r = s->next, *after;
    bool skips_alone = s->after_alone;
    s->next = NULL;
    s->next_end = &s->next;
    s->next_bytes = 0;
    for (; r != NULL; r = after) {
        after = r->next;
        if (is_full(s) || (skips_alone && r->alone) || !group_commit_add(s, r))
            put_next(s, r);
    }
}

/* A connection, and the time for this group. False: the request is answered. */
static bool prepare(struct group_commit *s, struct api_request *r)
{
    struct err e = {0};
    if (executor_session_connect(&s->session, &e) == 0 &&
        executor_session_now(&s->session, &s->now_ms, &e) == 0)
        return true;
    api_fail(&r->answer, atomic_load(&s->executor->runtime->stored_ready) ? API_DATABASE_AWAY : API_NOT_READY,
             "nothing was stored: %s", e.kind == ERR_AWAY ? "the database does not answer" : e.text);
    executor_park_answer(&s->park, r, false, false);
    return false;
}

static void reset(struct group_commit *s)
{
    s->count = 0;
    api_scheduler_reset(&s->scheduler, s->now_ms, startup_hold_policy(s->executor->runtime));
}

/* One request from the park is the group, if it is time to try one; more while they meet no lock. */
static bool gather_parked(struct group_commit *s)
{
    struct api_request *r = executor_park_take(&s->park);
    if (r == NULL)
        return false;
    s->trying = true;
    if (!prepare(s, r))
        return true;
    reset(s);
    for (; r != NULL; r = s->count < s->park_tries && !is_full(s) ? executor_park_take(&s->park) : NULL) {
        if (!group_commit_add(s, r)) {
            executor_park_at_once(&s->park, r);
            break;
        }
    }
    return true;
}

bool group_commit_gather(struct group_commit *s)
{
    struct executor_queue *queue = &s->executor->pools[API_GROUP_COMMIT].queue;
    bool ended = false, in_turn = !s->trying;
    size_t most = s->number == 0 ? SIZE_MAX : EXECUTOR_SMALL_BODY;
    s->count = 0;
    s->trying = false;
    if (in_turn && gather_parked(s))
        return true;
    int64_t wait_ms = s->next != NULL ? 0 : executor_park_pause_ms(&s->park, IDLE_MS);
    struct api_request *r = s->next;
    if (r != NULL) {
        s->next_bytes -= r->body.len;
        s->next = r->next; /* it answers for all of them where there is no connection */
        if (s->next == NULL)
            s->next_end = &s->next;
    } else {
        r = executor_queue_take(queue, s->number, most, wait_ms, &ended);
    }
    if (r == NULL && ended)
        clock_nap_ms(executor_park_pause_ms(&s->park, 20));
    if (r == NULL)
        return !ended || s->park.first != NULL;
    if (!prepare(s, r))
        return true;
    reset(s);
    r->next = s->next;
    s->next = r;
    if (r->next == NULL)
        s->next_end = &r->next;
    add_next(s);
    while (!is_full(s) && s->next_bytes < NEXT_MAX &&
           (r = executor_queue_take(queue, s->number, most, 0, &ended)) != NULL)
        if (!group_commit_add(s, r))
            put_next(s, r);
    s->after_alone = s->count > 0 && s->group[0].schedule.request->alone;
    return true;
}
