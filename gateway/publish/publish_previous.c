/* Connections that were held up, and what is unconfirmed there: it may be confirmed a moment later, and would
 * arrive twice if it were published again at once (docs/internals/publish.md). */
#include "gateway/publish/publish_internal.h"
#include "gateway/runtime/log.h"

#define SILENT_MS 5000 /* it has said nothing for so long: what is unconfirmed there is in doubt */
#define OTHERS_MS                                                                                            \
    3000 /* … while RabbitMQ has answered elsewhere for so long; it answers this one next, perhaps */
#define SWITCH_EVERY_MS 1000
#define SWITCH_AGAIN_MS                                                                                      \
    5000 /* where it never answered, nor another one since, or one would have to give way */

/* Its unconfirmed messages stay with it; the destination cache counts them as publishes elsewhere. */
static void leave_messages(struct publisher *p, struct publisher_previous *previous)
{
    previous->confirms = p->confirms;
    for (struct inflight *h = previous->confirms.oldest, *next; h; h = next) {
        next = h->next;
        if (h->released) {
            if (p->role->alone)
                publisher_left(p, h, false);
            inflight_free(confirms_take(&previous->confirms, h->tag, false));
            continue;
        }
        if (!p->role->alone)
            destination_cache_tried(p->destinations, h->destination);
        h->unproven = false;
        h->left_behind = true;
    }
}

static void end_previous(struct publisher *p, struct publisher_previous *previous, const char *why)
{
    struct err e = {0};
    char name[INFLIGHT_NAME_SIZE];
    if (previous->confirms.count > 0)
        log_debug("%s: %d unconfirmed on a connection that was held up, the first %s: %s", p->role->name,
                  previous->confirms.count,
                  previous->confirms.oldest ? inflight_name(previous->confirms.oldest, name) : "none", why);
    err_set(&e, ERR_AWAY, "%s", why);
    publisher_doubt_all(p, &previous->confirms,
                        &(struct publisher_end){.e = &e, .code = broker_close_code(previous->broker)});
    broker_abort(previous->broker);
    previous->broker = NULL;
}

/* A free place, or the one that is to give way. */
static struct publisher_previous *find_place(struct publisher *p)
{
    struct publisher_previous *oldest = &p->previous[0];
    for (int i = 0; i < PUBLISHER_PREVIOUS_MOST; i++) {
        struct publisher_previous *previous = &p->previous[i];
        if (!previous->broker)
            return previous;
        if (previous->since_ms < oldest->since_ms)
            oldest = previous;
    }
    return oldest;
}

bool publisher_may_change_over(struct publisher *p, int64_t now_ms)
{
    const struct publisher_previous *place = find_place(p);
    bool worked = p->answered || p->role->alone || atomic_load(&p->pipeline->answered_ms) > p->switched_ms;
    if (now_ms - p->switched_ms < (worked ? SWITCH_EVERY_MS : SWITCH_AGAIN_MS))
        return false;
    return !place->broker || now_ms - place->since_ms >= SWITCH_AGAIN_MS;
}

void publisher_change_over(struct publisher *p, struct broker *b)
{
    struct publisher_previous *previous = find_place(p);
    if (previous->broker)
        end_previous(p, previous, "more were held up since");
    log_debug("%s: the channel is held up: changing over to another connection", p->role->name);
    leave_messages(p, previous);
    previous->since_ms = previous->heard_ms = clock_monotonic_ms();
    previous->others_ms = 0;
    previous->broker = publisher_swap_broker(p, b);
    /* What is half sent will never be confirmed, and sending the rest may block. */
    if (broker_has_unsent(previous->broker))
        end_previous(p, previous, "the broker did not read");
}

/* Would it help any message to be published again now? */
static bool helps_to_give_up(const struct publisher *p, const struct publisher_previous *previous,
                             int64_t now_ms)
{
    if (now_ms - previous->since_ms > PUBLISHER_CONFIRM_MS)
        return true;
    for (const struct inflight *h = previous->confirms.oldest; h; h = h->next)
        if (!destination_cache_stands_still(p->destinations, h->destination))
            return true;
    return false;
}

/* False: it has ended. */
static bool read_previous(struct publisher *p, struct publisher_previous *previous)
{
    struct broker_event ev;
    struct err e = {0};
    do {
        if (publisher_next_event(p, previous->broker, &ev, &e) != 0) {
            end_previous(p, previous, e.text);
            return false;
        }
        if (ev.kind != BROKER_EVENT_NONE || p->blocked) /* a blocked broker answers nobody */
            previous->heard_ms = clock_monotonic_ms();
        if (ev.kind != BROKER_EVENT_NONE)
            atomic_store(&p->pipeline->answered_ms, previous->heard_ms);
        publisher_on_answer(p, &previous->confirms, &ev);
    } while (ev.kind != BROKER_EVENT_NONE);
    return true;
}

int publisher_left_behind(const struct publisher *p)
{
    int count = 0;
    for (int i = 0; i < PUBLISHER_PREVIOUS_MOST; i++)
        if (p->previous[i].broker)
            count += p->previous[i].confirms.count;
    return count;
}

/* Silence counts while giving up would help. Where RabbitMQ as a whole stood still and goes on, this one may
 * be the last to answer; where it answers others, it does not matter which: the newest one may be held up,
 * too. */
static bool has_been_silent(const struct publisher *p, struct publisher_previous *previous, bool look)
{
    int64_t now_ms = clock_monotonic_ms();
    if (!previous->others_ms && atomic_load(&p->pipeline->answered_ms) > previous->since_ms)
        previous->others_ms = now_ms;
    if (look && !helps_to_give_up(p, previous, now_ms))
        previous->heard_ms = now_ms;
    bool goes_on = previous->others_ms && now_ms - previous->others_ms > OTHERS_MS;
    return now_ms - previous->heard_ms > SILENT_MS &&
           (goes_on || p->role->alone || now_ms - previous->since_ms > PUBLISHER_CONFIRM_MS);
}

void publisher_listen_to_previous(struct publisher *p, bool look)
{
    for (int i = 0; i < PUBLISHER_PREVIOUS_MOST; i++) {
        struct publisher_previous *previous = &p->previous[i];
        if (!previous->broker || !read_previous(p, previous))
            continue;
        if (previous->confirms.count == 0)
            end_previous(p, previous, "all is confirmed");
        else if (has_been_silent(p, previous, look))
            end_previous(p, previous, "no answer");
    }
}

void publisher_end_previous(struct publisher *p)
{
    for (int i = 0; i < PUBLISHER_PREVIOUS_MOST; i++)
        if (p->previous[i].broker)
            end_previous(p, &p->previous[i], "the publisher stops");
}
