/* What does not confirm.
 *
 * A publisher that has heard nothing for a moment pings its channel. When the answer comes and the confirm
 * does not, the message's address stands still, and nothing else does. When not even the answer comes, the
 * channel is held up, or the whole broker is: the publisher then opens a second connection, and changes over
 * to it if the first one has still said nothing (publish_previous.c). What follows for an address that was
 * among the first of what was in flight goes through the patient publisher then, which finds out, alone with
 * each address, which of them it was, and waits with that. */
#include "gateway/publish/publisher.h"
#include "gateway/runtime/log.h"

#include <poll.h>

#define PING_MS 50        /* a publish that nothing followed from the broker for so long makes a ping */
#define SILENT_MS 250     /* after a ping: the channel is held up, or the broker */
#define BYTES_PER_MS 4096 /* but what is large takes its time */
#define ALONE_MS 500      /* answered and not confirmed: the address stands still */
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

static struct address_book *addresses(struct publisher *p)
{
    return &p->gateway->addresses;
}

int publisher_ping(struct publisher *p, struct err *e)
{
    p->pinging = true;
    p->pinged_ms = clock_monotonic_ms();
    p->ping_tag = p->confirms.next - 1;
    publisher_set_busy(p, true);
    int rc = broker_ping(p->broker, e);
    publisher_set_busy(p, false);
    return rc;
}

void publisher_heard(struct publisher *p, const struct broker_event *ev)
{
    const struct held *newest = p->confirms.newest;
    p->heard_ms = clock_monotonic_ms();
    p->unheard_ms = 0;
    if (ev->kind != BROKER_EVENT_PONG)
        return;
    p->pinging = false;
    p->answered_tag = p->ping_tag;
    if (p->role == PUBLISHER_CAREFUL && newest && !newest->released && newest->tag == p->ping_tag)
        exchange_book_good(&p->gateway->exchanges, newest->message.exchange);
}

bool publisher_was_answered(struct publisher *p)
{
    const struct held *newest = p->confirms.newest;
    int64_t now_ms = clock_monotonic_ms();
    if (p->pinging)
        return false;
    if (!newest || newest->released || address_book_stands_still(addresses(p), newest->address))
        return true;
    if (now_ms - newest->published_ms < ALONE_MS)
        return false;
    address_book_stalled(addresses(p), newest, now_ms, 0);
    wake_ring(&p->gateway->fast.wake);
    return true;
}

bool publisher_lags(const struct publisher *p, int64_t now_ms)
{
    return p->confirms.oldest && now_ms - p->confirms.oldest->published_ms > PING_MS;
}

void publisher_sent(struct publisher *p, struct held *h)
{
    if (p->unheard_ms == 0)
        p->unheard_ms = h->published_ms;
    if (!is_fast(p) && !p->transport)
        address_book_tried(addresses(p), h->address);
}

void publisher_left(struct publisher *p, struct held *h, bool confirmed)
{
    int64_t now_ms = clock_monotonic_ms();
    if (p->transport || !h->address)
        return;
    bool fast = is_fast(p) && !h->left_behind;
    if (fast)
        address_book_left(addresses(p), h, confirmed, now_ms);
    else
        address_book_try_ended(addresses(p), h->address, confirmed, now_ms);
    if (!fast)
        wake_ring(&p->gateway->fast.wake); /* some may be parked for that */
}

int64_t publisher_wait_until_ms(struct publisher *p, const struct held *h)
{
    int64_t now_ms = h->at_ms;
    gateway_now_ms(p->gateway, &now_ms);
    return now_ms + address_book_wait_ms(addresses(p), clock_monotonic_ms());
}

void publisher_wait(struct publisher *p, struct held *h)
{
    held_set_error(h, HELD_UNCONFIRMED " an earlier message to this exchange and routing key");
    h->next_at_ms = publisher_wait_until_ms(p, h);
    gateway_settle(p->gateway, h, SETTLE_WAIT);
}

void publisher_put_back_parked(struct publisher *p)
{
    if (!is_fast(p))
        return;
    for (struct held *h = address_book_unpark_all(addresses(p)), *next; h; h = next) {
        next = h->next;
        gateway_settle(p->gateway, h, SETTLE_PUT_BACK);
    }
}

/* Its row is given back, so that it can be seen and ended; what is left of it tells when its confirm comes.
 */
static void release(struct publisher *p, struct held *h)
{
    struct held *ghost = held_ghost(h);
    if (!ghost)
        return;
    confirms_replace(&p->confirms, h, ghost);
    h->in_doubt = true;
    held_set_error(h, PUBLISHER_UNCONFIRMED);
    h->next_at_ms = publisher_wait_until_ms(p, h);
    gateway_settle(p->gateway, h, SETTLE_IN_DOUBT);
}

static void forget(struct publisher *p, struct held *ghost)
{
    publisher_left(p, ghost, false);
    held_free(confirms_take(&p->confirms, ghost->tag, false));
}

static void stand_still(struct publisher *p, const struct held *h, int64_t now_ms)
{
    struct held *parked = NULL;
    if (!address_book_check(addresses(p), h, now_ms, &parked))
        return;
    for (struct held *next; parked; parked = next) {
        next = parked->next;
        publisher_wait(p, parked);
    }
}

/* At what is unconfirmed for long. */
static void look(struct publisher *p, int64_t now_ms)
{
    size_t kept = 0;
    p->looked_ms = now_ms;
    for (struct held *h = p->confirms.oldest, *next; h; h = next) {
        int64_t age_ms = now_ms - h->published_ms;
        if (age_ms <= ADDRESS_STALLED_MS)
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
    int news = address_book_news(addresses(p), now_ms, name, sizeof name);
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
    for (const struct held *h = p->confirms.oldest; h && n < SUSPECTS; h = h->next)
        n += !h->released && address_book_suspect(addresses(p), h->address);
}

/* The fast publisher's: the first of what is in flight there may be to blame. What was parked is asked about
 * again. */
static void hold_up(struct publisher *p, int64_t now_ms)
{
    suspect_first(p);
    address_book_wary(addresses(p), true, now_ms);
    for (struct held *h = address_book_unpark_all(addresses(p)), *next; h; h = next) {
        next = h->next;
        if (lane_push(p->lane, h) != 0)
            gateway_settle(p->gateway, h, SETTLE_PUT_BACK);
    }
    address_book_landed(addresses(p));
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
    address_book_wary(addresses(p), false, now_ms);
    address_book_stalled(addresses(p), p->confirms.newest, now_ms, PUBLISHER_AGAIN_MS);
    wake_ring(&p->gateway->fast.wake);
}

/* The patient publisher waits for what it knows about, as long as the others can wait. */
static bool can_wait(struct publisher *p, int64_t silent_ms)
{
    const struct held *newest = p->confirms.newest;
    bool known = newest && address_book_stands_still(addresses(p), newest->address);
    return !newest || (known && (lane_next_ms(p->lane) == INT64_MAX || silent_ms < OTHERS_WAIT_MS));
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

int publisher_watch(struct publisher *p, struct err *e)
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
        address_book_look_again(addresses(p));
    }
    int64_t since_ms = p->pinged_ms > p->heard_ms ? p->pinged_ms : p->heard_ms;
    if (p->pinging && now_ms - since_ms > limit_ms)
        return on_silence(p, now_ms, now_ms - since_ms, e);
    if (is_fast(p) && !p->pinging && p->unheard_ms && now_ms - p->unheard_ms > PING_MS)
        return publisher_ping(p, e);
    return 0;
}
