#include "gateway/daemon/receipt_doubt.h"

#include "gateway/log.h"
#include "sql/claim.h"
#include <inttypes.h>
#include <stdlib.h>

#define LOOK_MS 2000   /* between two looks at the mark: how exactly the time of death is known */
#define PLACE_MS 10000 /* between two tries to place it */
#define BATCH 1000
#define LOCKED_MS 500 /* between two tries of what is locked */
/* A proper stop: how far behind a queue may be with what is routed to it: it ends without looking at the
 * rest.
 */
#define STOP_BEHIND_MS 1000
#define STOP_TAKES_MS 2000  /* from the end of the connections to that of the last queue that lets go */
#define OTHERS_MS 500       /* between two looks at what other gateways settled … */
#define OTHERS_FOR_MS 10000 /* … for so long after a start */
#define TELL_MS 5000        /* after a start: until most of it has been read */
#define WHY HELD_MAYBE_LOST " shortly after it let this message go and may have lost it: published again"

int receipt_doubt_open(struct receipt_doubt *d, struct gateway *g)
{
    *d = (struct receipt_doubt){.gateway = g, .from_due_ms = INT64_MAX, .to_due_ms = INT64_MIN};
    d->pending = calloc(RECEIPT_DOUBT_IDS, sizeof *d->pending);
    if (recent_open(&d->settled, RECEIPT_DOUBT_IDS) == 0 && d->pending)
        return 0;
    receipt_doubt_close(d, NULL);
    return -1;
}

void receipt_doubt_close(struct receipt_doubt *d, struct broker *b)
{
    restart_mark_remove(&d->mark, b);
    recent_close(&d->settled);
    free(d->pending);
    d->pending = NULL;
}

void receipt_doubt_empty(struct receipt_doubt *d, int64_t at_ms)
{
    d->empty_ms = at_ms;
}

void receipt_doubt_heard(struct receipt_doubt *d)
{
    if (d->empty_ms > d->heard_ms)
        d->heard_ms = d->empty_ms;
}

void receipt_doubt_settled(struct receipt_doubt *d, struct message_id id)
{
    recent_add(&d->settled, id, clock_monotonic_ms());
}

void receipt_doubt_lost(struct receipt_doubt *d, const struct broker *b)
{
    bool shut_down = b && broker_was_shut_down(b);
    if (d->lost_ms == 0) {
        d->lost_ms = clock_monotonic_ms();
        d->shut_down = shut_down;
    }
}

/* Database time at a monotonic one. */
static int64_t database_ms(const struct receipt_doubt *d, int64_t at_ms)
{
    int64_t now_ms = 0;
    gateway_now_ms(d->gateway, &now_ms); /* there was a sample before the first receipt came */
    return now_ms - (clock_monotonic_ms() - at_ms);
}

/* Receipts for what is due in [from_ms, to_ms], read from now on, are not believed. Nor are those of the last
 * decision, if that was lately: they may still be unread. */
static void doubt_due(struct receipt_doubt *d, int64_t from_ms, int64_t to_ms)
{
    int64_t now_ms = clock_monotonic_ms();
    bool lately = d->decided_ms && now_ms - d->decided_ms < d->gateway->config->handover.grace_ms;
    d->from_due_ms = lately && d->from_due_ms < from_ms ? d->from_due_ms : from_ms;
    d->to_due_ms = to_ms;
    d->decided_ms = now_ms;
    log_debug("RabbitMQ started anew: %zu settled lately, and what was due from %" PRId64 " to %" PRId64
              ", are in doubt",
              d->pending_count, d->from_due_ms, d->to_due_ms);
}

/* What receipts settled since since_ms (monotonic), and what was due from then, and the lag before it, up to
 * to_ms, is not believed. */
static void doubt_since(struct receipt_doubt *d, int64_t since_ms, int64_t to_ms, int64_t lag_ms)
{
    int64_t from_ms = database_ms(d, since_ms) - lag_ms;
    d->pending_count += recent_since(&d->settled, since_ms, d->pending + d->pending_count,
                                     RECEIPT_DOUBT_IDS - d->pending_count);
    if (recent_forgot(&d->settled, since_ms))
        log_warning("more than %d receipts came in the time before RabbitMQ ended: what it let go earlier is "
                    "not published again, and may be lost",
                    RECEIPT_DOUBT_IDS);
    /* A receipt that was read, but not acknowledged, comes again, and must not settle what it settled before.
     */
    for (size_t i = 0; i < d->pending_count; i++)
        if (message_id_due_ms(d->pending[i]) < from_ms)
            from_ms = message_id_due_ms(d->pending[i]);
    d->since_ms = database_ms(d, since_ms);
    doubt_due(d, from_ms, database_ms(d, to_ms));
}

/* The broker started anew. Either it died after heard_ms. Or it was stopped: it ended its connections between
 * empty_ms and lost_ms, then its queues, in no order, and wrote what they had taken; but what was let go
 * meanwhile, or still lay before a queue, may have reached the receipt queue only. And so may what was let go
 * since, until all its queues have a leader, unless it had no way to go. */
static void doubt(struct receipt_doubt *d, int64_t lag_ms)
{
    int64_t since_ms =
        d->shut_down ? d->empty_ms - STOP_BEHIND_MS : d->heard_ms - d->gateway->config->handover.grace_ms;
    int64_t to_ms = clock_monotonic_ms() + RESTART_ELECTIONS_MS;
    if (d->mark.swept && d->comes_back)
        to_ms = d->lost_ms + (d->shut_down ? STOP_TAKES_MS : 0);
    doubt_since(d, since_ms, to_ms, lag_ms);
}

/* Is there to be a mark? Without hand-over there is nothing to doubt. */
static bool is_wanted(const struct receipt_doubt *d)
{
    /* Not before it is known whether a policy makes it expire. */
    bool known = atomic_load(&d->gateway->policy) != POLICY_UNKNOWN;
    return known && d->gateway->transport && d->gateway->config->handover.receipts && !d->refused;
}

/* The broker answered something that was asked at asked_ms. */
static void answered(struct receipt_doubt *d, int64_t asked_ms)
{
    d->heard_ms = asked_ms;
    d->lost_ms = 0;
}

/* 0: the mark was looked at, if there is one. -1: that failed, or b is dead. */
static int look(struct receipt_doubt *d, struct broker *b, int64_t lag_ms, struct err *e)
{
    d->look_ms = clock_monotonic_ms();
    if (!is_wanted(d) || (!d->mark.placed && d->lost_ms == 0))
        return 0;
    /* A connection that was lost before there was a mark: the broker may have died. */
    int there = d->mark.placed ? restart_mark_look(&d->mark, b, e) : 0;
    if (there < 0)
        return -1;
    if (!there && atomic_load(&d->gateway->policy) == POLICY_IN_THE_WAY) {
        d->place_ms = 0; /* it may have expired, so its end tells nothing */
    } else if (!there) {
        receipt_doubt_lost(d, b); /* if not yet: another node of the cluster ended, and not the one of b */
        doubt(d, lag_ms);
        d->mark.swept = false;
        d->place_ms = 0;
    }
    answered(d, d->look_ms);
    return broker_is_dead(b)
               ? err_set(e, ERR_AWAY, "RabbitMQ has no queue postdate.mark.… of this gateway any more")
               : 0;
}

int receipt_doubt_connected(struct receipt_doubt *d, struct broker *b, bool comes_back, int64_t lag_ms,
                            struct err *e)
{
    d->comes_back = comes_back;
    if (look(d, b, lag_ms, e) != 0)
        return -1;
    answered(d, d->look_ms);
    receipt_doubt_empty(d, d->look_ms);
    return 0;
}

static void place(struct receipt_doubt *d)
{
    struct err e = {0};
    if (d->mark.placed || !is_wanted(d) || (d->place_ms && clock_monotonic_ms() - d->place_ms < PLACE_MS))
        return;
    d->place_ms = clock_monotonic_ms();
    if (restart_mark_place(&d->mark, d->gateway, &e) == 0)
        return;
    log_debug("the mark by which a start of RabbitMQ is noticed: %s", e.text);
    d->refused = !err_is_transient(&e);
    if (d->refused)
        log_warning("when RabbitMQ dies, what it let go just before is not published again, for there is no "
                    "telling that it died: %s",
                    e.text);
}

static int write_pending(struct receipt_doubt *d, struct pg *pg, struct err *e)
{
    bool locked[BATCH];
    size_t kept = 0, done = 0;
    if (d->pending_count == 0 || clock_monotonic_ms() - d->pending_ms < LOCKED_MS)
        return 0;
    int rc = 0;
    while (done < d->pending_count && rc == 0) {
        size_t left = d->pending_count - done, n = left < BATCH ? left : BATCH, changed;
        struct settle_doubt q = {.ids = d->pending + done, .count = n, .delivered = true, .why = WHY};
        rc = settle_doubt(pg, &q, locked, &changed, e);
        if (rc != 0)
            break;
        d->doubted += changed;
        metrics_add(&d->gateway->metrics, METRIC_IN_DOUBT, changed);
        for (size_t i = 0; i < n; i++)
            if (locked[i])
                d->pending[kept++] = d->pending[done + i];
        done += n;
    }
    while (done < d->pending_count)
        d->pending[kept++] = d->pending[done++];
    d->pending_count = kept;
    d->pending_ms = clock_monotonic_ms();
    return rc;
}

/* Another gateway may read receipts that are not to be believed and not know it: one that was started since,
 * or that died with the broker. */
static int look_at_others(struct receipt_doubt *d, struct pg *pg, struct err *e)
{
    int64_t now_ms = clock_monotonic_ms();
    if (d->decided_ms == 0 || d->pending_count > 0 || now_ms - d->decided_ms > OTHERS_FOR_MS ||
        now_ms - d->others_ms < OTHERS_MS)
        return 0;
    d->others_ms = now_ms;
    int n = settle_by_receipts(pg, d->from_due_ms, d->to_due_ms, d->since_ms, d->pending, BATCH, e);
    if (n < 0) {
        if (pg_is_broken(pg) || !err_is_transient(e))
            return -1;
        err_clear(e); /* a lock, or the like: next time */
        return 0;
    }
    d->pending_count = (size_t)n;
    if (n == BATCH)
        d->others_ms = 0; /* there may be more */
    return 0;
}

int receipt_doubt_pulse(struct receipt_doubt *d, struct broker *b, struct pg *pg, int64_t lag_ms,
                        struct err *e)
{
    place(d);
    if (clock_monotonic_ms() - d->look_ms >= LOOK_MS && look(d, b, lag_ms, e) != 0)
        return -1;
    return write_pending(d, pg, e) != 0 || look_at_others(d, pg, e) != 0 ? -1 : 0;
}

bool receipt_doubt_applies(const struct receipt_doubt *d, struct message_id id)
{
    int64_t due_ms = message_id_due_ms(id);
    return due_ms >= d->from_due_ms && due_ms <= d->to_due_ms;
}

int receipt_doubt_read(struct receipt_doubt *d, struct pg *pg, const struct message_id *ids, size_t count,
                       bool *locked, struct err *e)
{
    size_t changed = 0;
    /* What is delivered already was settled by a receipt that is believed, or by a confirm. */
    struct settle_doubt q = {.ids = ids, .count = count, .delivered = false, .why = WHY};
    if (settle_doubt(pg, &q, locked, &changed, e) != 0)
        return -1;
    d->doubted += changed;
    metrics_add(&d->gateway->metrics, METRIC_IN_DOUBT, changed);
    return 0;
}

void receipt_doubt_tell(struct receipt_doubt *d)
{
    if (d->doubted == 0 || d->pending_count > 0 || clock_monotonic_ms() - d->decided_ms < TELL_MS)
        return;
    log_warning(
        "RabbitMQ %s and may have lost what it had just let go: %zu messages are published again, some "
        "will arrive twice",
        d->shut_down ? "was stopped" : "died without a proper stop", d->doubted);
    d->doubted = 0;
}
