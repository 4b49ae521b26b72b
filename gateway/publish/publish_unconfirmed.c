/* What does not confirm.
 *
 * A publisher that has heard nothing for a moment pings its channel. When the answer comes and the confirm
 * does not, the message's destination stands still, and nothing else does. When not even the answer comes,
 * the channel is held up, or the whole broker is: the publisher then opens a second connection, and changes
 * over to it if the first one has still said nothing (publish_previous.c). What follows for a destination
 * that was among the first of what was in flight goes through the patient publisher then, which finds out,
 * alone with each destination, which of them it was, and waits with that. */
#include "gateway/publish/publisher.h"
#include "gateway/runtime/log.h"

#include <poll.h>

#define PING_MS 50        /* a publish that nothing followed from the broker for so long makes a ping */
#define SILENT_MS 250     /* after a ping: the channel is held up, or the broker */
#define BYTES_PER_MS 4096 /* but what is large takes its time */
#define ALONE_MS 500      /* answered and not confirmed: the destination stands still */
#define LOOK_EVERY_MS 50
#define SWITCH_EVERY_MS 1000
#define PARKED_EVERY_MS 500
#define SUSPECTS 8          /* a channel is held up by one of the first that are unconfirmed */
#define OTHERS_WAIT_MS 2000 /* the patient one is held up, and others are to be tried */
#define KEPT_MS 1000        /* unconfirmed for so long, it may not take more memory than this: */
#define KEPT_BYTES_MAX (3u * 1024 * 1024)
#define GHOST_MS 120000 /* a confirm that has not come by then is lost */
#define GHOSTS_MAX 1000

static bool is_fast(const struct publisher *p)
{
    return p->role == PUBLISHER_FAST;
}

static struct destination_cache *addresses(struct publisher *p)
{
    return &p->gateway->destinations;
}

void publisher_heard(struct publisher *p, const struct broker_event *ev)
{
    const struct inflight *newest = p->confirms.newest;
    p->heard_ms = clock_monotonic_ms();
    p->unheard_ms = 0;
    if (ev->kind != BROKER_EVENT_PONG)
        return;
    p->pinging = false;
    p->answered_tag = p->ping_tag;
    if (p->role == PUBLISHER_SERIAL && newest && !newest->released && newest->tag == p->ping_tag)
        exchange_cache_good(&p->gateway->exchanges, newest->message.exchange);
}

bool publisher_was_answered(struct publisher *p)
{
    const struct inflight *newest = p->confirms.newest;
    int64_t now_ms = clock_monotonic_ms();
    if (p->pinging)
        return false;
    if (!newest || newest->released || destination_cache_stands_still(addresses(p), newest->destination))
        return true;
    if (now_ms - newest->published_ms < ALONE_MS)
        return false;
    destination_cache_stalled(addresses(p), newest, now_ms, 0);
    notifier_notify(&p->gateway->fast.notifier);
    return true;
}

bool publisher_lags(const struct publisher *p, int64_t now_ms)
{
    return p->confirms.oldest && now_ms - p->confirms.oldest->published_ms > PING_MS;
}

void publisher_sent(struct publisher *p, struct inflight *h)
{
    if (p->unheard_ms == 0)
        p->unheard_ms = h->published_ms;
    if (!is_fast(p) && !p->transport)
        destination_cache_tried(addresses(p), h->destination);
}

void publisher_release_parked(struct publisher *p)
{
    if (!is_fast(p))
        return;
    for (struct inflight *h = destination_cache_unpark_all(addresses(p)), *next; h; h = next) {
        next = h->next;
        gateway_settle(p->gateway, h, SETTLE_RELEASE);
    }
}

/* Its row is given back, so that it can be seen and ended; what is left of it tells when its confirm comes.
 */
static void release(struct publisher *p, struct inflight *h)
{
    struct inflight *ghost = inflight_ghost(h);
    if (!ghost)
        return;
    confirms_replace(&p->confirms, h, ghost);
    h->in_doubt = true;
    inflight_set_error(h, PUBLISHER_UNCONFIRMED);
    h->next_at_ms = publisher_wait_until_ms(p, h);
    gateway_settle(p->gateway, h, SETTLE_IN_DOUBT);
}

static void forget(struct publisher *p, struct inflight *ghost)
{
    publisher_left(p, ghost, false);
    inflight_free(confirms_take(&p->confirms, ghost->tag, false));
}

static void stand_still(struct publisher *p, const struct inflight *h, int64_t now_ms)
{
    struct inflight *parked = NULL;
    if (!destination_cache_check(addresses(p), h, now_ms, &parked))
        return;
    for (struct inflight *next; parked; parked = next) {
        next = parked->next;
        publisher_wait(p, parked);
    }
}

/* At what is unconfirmed for long. */
static void look(struct publisher *p, int64_t now_ms)
{
    size_t kept = 0;
    p->looked_ms = now_ms;
    for (struct inflight *h = p->confirms.oldest, *next; h; h = next) {
        int64_t age_ms = now_ms - h->published_ms;
        if (age_ms <= DESTINATION_STALLED_MS)
            break;
        next = h->next;
        if (h->released && (age_ms > GHOST_MS || p->confirms.ghosts > GHOSTS_MAX)) {
            forget(p, h);
            continue;
        }
        if (is_fast(p))
            stand_still(p, h, now_ms);
        if (h->released || age_ms < KEPT_MS)
            continue;
        kept += h->size;
        if ((age_ms > PUBLISHER_CONFIRM_MS || kept > KEPT_BYTES_MAX) && !p->pinging)
            release(p, h);
    }
}

static void tell(struct publisher *p, int64_t now_ms)
{
    char name[200];
    int news = destination_cache_news(addresses(p), now_ms, name, sizeof name);
    atomic_store(&p->gateway->metrics.stalled, addresses(p)->stalled);
    if (news > 0)
        log_warning("RabbitMQ confirms nothing that goes to %s: does a queue there have no majority of its "
                    "nodes? Such messages wait, the others go on",
                    name);
    else if (news < 0)
        log_info("RabbitMQ confirms everything again");
}

static void suspect_first(struct publisher *p)
{
    int n = 0;
    for (const struct inflight *h = p->confirms.oldest; h && n < SUSPECTS; h = h->next)
        n += !h->released && destination_cache_isolate(addresses(p), h->destination);
}

/* The fast publisher's: the first of what is in flight there may be to blame. What was parked is asked about
 * again. */
static void hold_up(struct publisher *p, int64_t now_ms)
{
    suspect_first(p);
    destination_cache_wary(addresses(p), true, now_ms);
    for (struct inflight *h = destination_cache_unpark_all(addresses(p)), *next; h; h = next) {
        next = h->next;
        if (due_queue_push(p->queue, h) != 0)
            gateway_settle(p->gateway, h, SETTLE_RELEASE);
    }
    destination_cache_landed(addresses(p));
}

/* Another connection, once that one is held up and not the whole broker. NULL: not now. */
static struct broker *dial_another(struct publisher *p, int64_t now_ms)
{
    struct err e = {0};
    struct pollfd old = {.fd = broker_fd(p->broker), .events = POLLIN};
    if (now_ms - p->switched_ms < SWITCH_EVERY_MS)
        return NULL;
    struct broker *b = publisher_dial(p, &e);
    /* That took as long as the whole broker stood still. What it says now is read next. */
    if (b && poll(&old, 1, 0) == 0)
        return b;
    broker_drop(b);
    p->switched_ms = clock_monotonic_ms();
    return NULL;
}

/* It was alone, so it is to blame. */
static void blame_newest(struct publisher *p, int64_t now_ms)
{
    destination_cache_wary(addresses(p), false, now_ms);
    destination_cache_stalled(addresses(p), p->confirms.newest, now_ms, PUBLISHER_AGAIN_MS);
    notifier_notify(&p->gateway->fast.notifier);
}

/* The patient publisher waits for what it knows about, as long as the others can wait. */
static bool can_wait(struct publisher *p, int64_t silent_ms)
{
    const struct inflight *newest = p->confirms.newest;
    bool known = newest && destination_cache_stands_still(addresses(p), newest->destination);
    return !newest || (known && (due_queue_next_ms(p->queue) == INT64_MAX || silent_ms < OTHERS_WAIT_MS));
}

static int on_silence(struct publisher *p, int64_t now_ms, int64_t silent_ms, struct err *e)
{
    if (silent_ms > PUBLISHER_CONFIRM_MS)
        return err_set(e, ERR_AWAY, "no answer within %d s", PUBLISHER_CONFIRM_MS / 1000);
    if (!is_fast(p) && can_wait(p, silent_ms))
        return 0;
    struct broker *b = dial_another(p, now_ms);
    if (!b)
        return 0;
    now_ms = clock_monotonic_ms();
    if (is_fast(p))
        hold_up(p, now_ms);
    else
        blame_newest(p, now_ms);
    publisher_change_over(p, b);
    p->switched_ms = now_ms;
    return 0;
}

int publisher_check_unconfirmed(struct publisher *p, struct err *e)
{
    int64_t now_ms = clock_monotonic_ms();
    int64_t limit_ms = SILENT_MS + (int64_t)(p->confirms.bytes / BYTES_PER_MS);
    publisher_listen_to_previous(p);
    if (p->blocked) {
        p->pinged_ms = now_ms; /* a blocked broker does not answer, and says so */
        return 0;
    }
    if (now_ms - p->looked_ms >= LOOK_EVERY_MS)
        look(p, now_ms);
    if (is_fast(p))
        tell(p, now_ms);
    if (is_fast(p) && now_ms - p->parked_ms > PARKED_EVERY_MS) {
        p->parked_ms = now_ms;
        destination_cache_look_again(addresses(p));
    }
    int64_t since_ms = p->pinged_ms > p->heard_ms ? p->pinged_ms : p->heard_ms;
    if (p->pinging && now_ms - since_ms > limit_ms)
        return on_silence(p, now_ms, now_ms - since_ms, e);
    if (is_fast(p) && !p->pinging && p->unheard_ms && now_ms - p->unheard_ms > PING_MS)
        return publisher_ping(p, e);
    return 0;
}
