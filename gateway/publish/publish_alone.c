/* The serial and the patient publisher (publisher.h). */
#include "amqp/topology/topology.h"
#include "core/message/dead_letter.h"
#include "gateway/publish/publish_internal.h"

#include <stddef.h>

#define UNCONFIRMED_MOST 256 /* each was answered but the last */
#define UNCONFIRMED_BYTES_MAX (4u * 1024 * 1024)
#define STALLED_MS 500      /* answered and not confirmed: the destination stands still */
#define SUSPECT_MS 5        /* so long a suspect waits for the confirms of those before it */
#define OTHERS_WAIT_MS 2000 /* the patient one is held up, and others are to be tried */

/* Has the broker dealt with the last publish, so that the next one may go? */
static bool was_answered(struct publisher *p)
{
    const struct inflight *newest = p->confirms.newest;
    int64_t now_ms = clock_monotonic_ms();
    if (p->pinging)
        return false;
    if (!newest || newest->released || destination_cache_stands_still(p->destinations, newest->destination))
        return true;
    if (now_ms - newest->published_ms < STALLED_MS)
        return false;
    destination_cache_stalled(p->destinations, newest, now_ms, 0);
    notifier_notify(&p->pipeline->fast.notifier);
    return true;
}

/* Those before h are answered, but not all are confirmed; if RabbitMQ closes the channel over h, they are in
 * doubt. So what was tried alone before waits for them. So does an answer to a requester (direct reply-to),
 * for RabbitMQ 3.10 ends the connection over a key that is none. What is only suspect waits for a moment:
 * hundreds may be. */
static int64_t apart_ms(const struct inflight *h)
{
    return (h->isolate && h->attempts > 0) || publisher_is_reply(&h->message) ? STALLED_MS
           : h->isolate                                                       ? SUSPECT_MS
                                                                              : 0;
}

static bool may_go(const struct publisher *p, const struct inflight *h)
{
    const struct confirms *c = &p->confirms;
    return c->count == c->ghosts || clock_monotonic_ms() - c->newest->published_ms >= apart_ms(h);
}

static bool has_room(struct publisher *p)
{
    return p->confirms.count < UNCONFIRMED_MOST && p->confirms.bytes < UNCONFIRMED_BYTES_MAX &&
           was_answered(p) && (!p->apart || may_go(p, p->apart));
}

static bool route_serial(struct publisher *p, struct inflight *h)
{
    if (!publisher_route(p, h))
        return false;
    if (may_go(p, h))
        return true;
    p->apart = h;
    return false;
}

static bool has_apart(struct publisher *p)
{
    return p->apart && may_go(p, p->apart);
}

static int take_apart(struct publisher *p, struct inflight **h)
{
    *h = p->apart;
    p->apart = NULL;
    return *h && publisher_keep_ours(p, *h);
}

static void put_apart_back(struct publisher *p)
{
    if (p->apart)
        publisher_send_to(p, p->apart, p->queue);
    p->apart = NULL;
}

/* It was alone, so it is to blame. */
static void blame_newest(struct publisher *p, int64_t now_ms)
{
    destination_cache_wary(p->destinations, false, now_ms);
    destination_cache_stalled(p->destinations, p->confirms.newest, now_ms, PUBLISHER_AGAIN_MS);
    notifier_notify(&p->pipeline->fast.notifier);
}

/* It waits for what it knows about, as long as the others can wait. */
static bool can_wait(struct publisher *p, int64_t silent_ms)
{
    const struct inflight *newest = p->confirms.newest;
    bool known = newest && destination_cache_stands_still(p->destinations, newest->destination);
    return silent_ms <= PUBLISHER_CONFIRM_MS &&
           (!newest ||
            (known && (due_queue_next_ms(p->queue, DUE_ALL) == INT64_MAX || silent_ms < OTHERS_WAIT_MS)));
}

static int watch_unconfirmed(struct publisher *p, struct err *e)
{
    int64_t now_ms = clock_monotonic_ms();
    if (!publisher_check_unconfirmed(p, now_ms))
        return 0;
    int64_t silent_ms = publisher_silent_ms(p, now_ms);
    return silent_ms == 0 || can_wait(p, silent_ms) ? 0 : publisher_end_silence(p, now_ms, silent_ms, e);
}

static void give_up_alone(struct publisher *p, const struct publisher_end *end)
{
    publisher_doubt_all(p, &p->confirms, end);
}

static enum destination_verdict ask(struct publisher *p, struct inflight *h)
{
    struct destination_cache *cache = p->destinations;
    if (h->is_try)
        return destination_cache_stands_still(cache, h->destination) ? DESTINATION_TRY : DESTINATION_GOOD;
    return destination_cache_ask(cache, h, clock_monotonic_ms());
}

static void trust_exchange(struct publisher *p, const struct inflight *h)
{
    uint8_t name[256];
    if (!h->released)
        exchange_cache_learn(p->exchanges, exchange_cache_name(&h->message, name), EXCHANGE_GOOD, NULL);
}

static void note_ack(struct publisher *p, struct inflight *h)
{
    trust_exchange(p, h);
    publisher_acked(p, h);
}

/* The channel is still open after the last publish. */
static void note_pong(struct publisher *p)
{
    const struct inflight *newest = p->confirms.newest;
    if (newest && newest->tag == p->answered_tag)
        trust_exchange(p, newest);
}

/* The first message that goes back to a queue finds no binding there: neither does the first one after the
 * queue was deleted and declared anew. */
static int compose_serial(struct publisher *p, struct inflight *h, struct publish_to *to, struct err *e)
{
    struct bytes queue = dead_letter_return_queue(&h->message);
    int composed = publisher_compose(p, h, to, e);
    if (composed <= 0 || queue.len == 0)
        return composed;
    if (topology_bind_return(p->broker, queue, e) == 0)
        return 1;
    if (err_is_transient(e)) {
        pipeline_settle(p->pipeline, h, SETTLE_RELEASE);
        return -1;
    }
    h->queue_gone = e->kind == ERR_NOT_FOUND;
    publisher_note_refused(p, h, e);
    publisher_refuse(p, h, e->text);
    return -1;
}

const struct publisher_role publisher_serial = {
    .name = "postdate publisher (serial)",
    .up = UP_SERIAL,
    .queue = offsetof(struct pipeline, serial),
    .alone = true,
    .judges_exchanges = true,
    .watch = watch_unconfirmed,
    .give_up = give_up_alone,
    .has_room = has_room,
    .route = route_serial,
    .ask = ask,
    .compose = compose_serial,
    .reject = publisher_refuse,
    .on_ack = note_ack,
    .on_nack = publisher_nacked,
    .on_pong = note_pong,
    .on_held_up = blame_newest,
    .take_parked = take_apart,
    .has_parked = has_apart,
    .release_parked = put_apart_back,
};

const struct publisher_role publisher_patient = {
    .name = "postdate publisher (patient)",
    .up = UP_PATIENT,
    .queue = offsetof(struct pipeline, patient),
    .alone = true,
    .watch = watch_unconfirmed,
    .give_up = give_up_alone,
    .has_room = has_room,
    .route = publisher_route,
    .ask = ask,
    .compose = publisher_compose,
    .reject = publisher_refuse,
    .on_ack = publisher_acked,
    .on_nack = publisher_nacked,
    .on_held_up = blame_newest,
};
