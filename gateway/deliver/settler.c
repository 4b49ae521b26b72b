/* The settler: records outcomes in the database, a batch at a time.
 *
 * Deliveries of messages claimed by row are committed asynchronously: those that a crash of the database
 * loses are recorded again (struct delivered_ring), or else published again, but never lost. All other
 * commits are synchronous. A row that another open transaction has locked does not delay the others: it is
 * left out and retried later. */
#include "gateway/deliver/settler.h"
#include "core/base/clock.h"
#include "gateway/runtime/failing.h"
#include "gateway/runtime/sessions.h"
#include "sql/pipeline/batch.h"
#include "sql/pipeline/history.h"
#include "sql/pipeline/relay.h"

#include <inttypes.h>
#include <stdlib.h>

#define SETTLE_RANGES_MAX 256      /* of one statement */
#define SETTLE_RANGES_KEEP_MS 3000 /* how long they can be recorded again */

#define PENDING_MAX 5000 /* of one statement; or those of one range */

/* h is delivered, or goes back with its range, or its row says what became of it. */
static void settle_ranges_mark(struct claim_range **ranges, const struct inflight *h)
{
    struct claim_range *r = h->range;
    claim_range_mark(r, h->message.id,
                     inflight_goes_back(h)            ? (h->outcome == SETTLE_WAIT ? MARK_WAITS : MARK_BACK)
                     : h->outcome == SETTLE_DELIVERED ? MARK_DELIVERED
                                                      : MARK_APART);
    if (r->listed)
        return;
    claim_range_hold(r);
    r->listed = true;
    r->next = *ranges;
    *ranges = r;
}

static void drop_old(struct claim_range **ranges, int64_t now_ms)
{
    while (*ranges) {
        struct claim_range *r = *ranges;
        if (!r->written || now_ms - r->written_ms < SETTLE_RANGES_KEEP_MS || !claim_range_is_over(r)) {
            ranges = &r->next;
            continue;
        }
        *ranges = r->next;
        claim_range_release(r);
    }
}

/* What one statement writes. */
struct positions {
    struct claim_range *ranges[SETTLE_RANGES_MAX];
    struct batch_position at[SETTLE_RANGES_MAX];
    size_t count;
    struct batch_pending *pending;
    size_t pending_count;
};

static size_t count_pending(const struct claim_range *r)
{
    size_t n = 0, at = 0;
    while (claim_range_pending(r, &at))
        n++;
    return n;
}

/* Chooses some of one instance. */
static void choose(struct claim_range *ranges, struct positions *p)
{
    *p = (struct positions){0};
    for (struct claim_range *r = ranges; r && p->count < SETTLE_RANGES_MAX; r = r->next) {
        if (r->written || (p->count > 0 && r->instance != p->ranges[0]->instance))
            continue;
        size_t pending = count_pending(r);
        if (p->count > 0 && p->pending_count + pending > PENDING_MAX)
            break;
        p->pending_count += pending;
        p->at[p->count] =
            (struct batch_position){.batch = r->batch, .upto = r->upto, .end = claim_range_end(r)};
        p->ranges[p->count++] = r;
    }
}

static int fill_pending(struct positions *p, struct err *e)
{
    size_t n = 0;
    if (p->pending_count == 0)
        return 0;
    p->pending = calloc(p->pending_count, sizeof *p->pending);
    if (!p->pending)
        return err_set(e, ERR_BUG, "out of memory while settling");
    for (size_t i = 0; i < p->count; i++) {
        size_t at = 0;
        for (const struct message_id *id; (id = claim_range_pending(p->ranges[i], &at)) != NULL;)
            p->pending[n++] = (struct batch_pending){.batch = p->ranges[i]->batch.id, .id = *id};
    }
    return 0;
}

/* The database no longer has the range: its deliveries are recorded by their ids. */
static int say_singly(const struct claim_range *r, struct pg *c, int64_t *forgotten, struct err *e)
{
    struct message_id *ids = calloc(r->count ? r->count : 1, sizeof *ids);
    size_t n = 0;
    if (!ids)
        return err_set(e, ERR_BUG, "out of memory while settling");
    for (size_t i = 0; i < r->count; i++)
        if (r->places[i].mark == MARK_DELIVERED)
            ids[n++] = r->places[i].id;
    int64_t of_them = history_say_delivered(c, ids, n, e);
    free(ids);
    *forgotten += of_them > 0 ? of_them : 0;
    return of_them < 0 ? -1 : 0;
}

static int write_positions(struct positions *p, struct pg *c, int64_t *forgotten, struct err *e)
{
    bool missed[SETTLE_RANGES_MAX];
    int rc = fill_pending(p, e);
    const struct batch_settlement s = {.instance = p->ranges[0]->instance,
                                       .positions = p->at,
                                       .count = p->count,
                                       .pending = p->pending,
                                       .pending_count = p->pending_count};
    if (rc == 0)
        rc = batch_settle(c, &s, missed, e);
    free(p->pending);
    for (size_t i = 0; rc == 0 && i < p->count; i++)
        rc = missed[i] ? say_singly(p->ranges[i], c, forgotten, e) : 0;
    int64_t now_ms = clock_monotonic_ms();
    for (size_t i = 0; rc == 0 && i < p->count; i++)
        claim_range_note_written(p->ranges[i], now_ms);
    return rc;
}

/* Records marked messages, and forgets finished ranges. If the database does not have a range, or another
 * gateway has taken it over, its messages are recorded one by one: *forgotten grows by those of which it knew
 * nothing. -1: the connection is lost, or the database rejects something; call it again. Locked ranges are
 * recorded by the next call. */
static int settle_ranges_write(struct claim_range **ranges, struct pg *c, int64_t *forgotten, struct err *e)
{
    struct positions p;
    int rc = 0;
    for (choose(*ranges, &p); rc == 0 && p.count > 0; choose(*ranges, &p))
        rc = write_positions(&p, c, forgotten, e);
    drop_old(ranges, clock_monotonic_ms());
    if (rc != 0 && e->kind == ERR_BUSY && !pg_is_broken(c)) {
        failing_note("settler: ranges", e);
        err_clear(e);
        return 0;
    }
    failing_over("settler: ranges");
    return rc;
}

/* Is all of it? */
static bool settle_ranges_are_written(const struct claim_range *ranges)
{
    for (const struct claim_range *r = ranges; r; r = r->next)
        if (!r->written)
            return false;
    return true;
}

/* The database may have forgotten it: all is written once more. An instance that has settled messages whose
 * rows may not say so any more ends. */
static void settle_ranges_repeat(struct claim_range *ranges, struct lease *lease)
{
    for (struct claim_range *r = ranges; r; r = r->next)
        if (claim_range_note_forgotten(r))
            lease_end_instance(lease, r->instance);
}

static void settle_ranges_close(struct claim_range **ranges)
{
    while (*ranges) {
        struct claim_range *r = *ranges;
        *ranges = r->next;
        claim_range_release(r);
    }
}

/* --- The thread. */

/* After a small batch, wait for more: commits cost more than rows. With little load, only for a moment,
 * because unsettled messages may be delivered twice. */
#define NAP_MAX_MS 1000
#define GATHER_MS 10
#define GATHER_FEW_MS 3
#define SMALL 200
#define FEW 20
#define LATER_MS 1000
#define AROUND_MS 1000 /* where one row is locked, others may be: not each batch waits to find out */
#define SLO_EVERY_MS 1000
#define GIVE_UP_MS 5000 /* at the stop, for a database that is away */

/* Of the whole batch. */
static struct settle_owner owner_of(const struct settler *s, size_t i)
{
    const struct inflight *h = s->batch.messages[i];
    int32_t instance = inflight_is_relayed(h) ? lease_instance(s->lease) : h->instance;
    return (struct settle_owner){
        .instance = instance, .relayed = inflight_is_relayed(h), .handing = h->handing != NULL};
}

/* Tried again after LATER_MS. */
static void keep_for_later(struct settler *s, size_t i)
{
    result_queue_defer(&s->pipeline->results, s->batch.messages[i]);
    if (inflight_is_relayed(s->batch.messages[i]))
        exit_table_deferred(&s->pipeline->exits, s->batch.messages[i]->message.id);
    if (!s->later) /* else more would come and come, and none were tried again */
        s->later_ms = clock_monotonic_ms() + LATER_MS;
    s->batch.messages[i]->next = s->later;
    s->later = s->batch.messages[i];
    s->batch.messages[i] = NULL;
}

/* For the objective. */
static void count_delivery(struct settler *s, const struct inflight *h)
{
    const int64_t late_us = s->runtime->config->slo.late_ms * 1000;
    bool again = inflight_is_again(h);
    if (h->outcome != SETTLE_DELIVERED || h->end == INFLIGHT_END_PROOF)
        return;
    s->slo.delivered++;
    s->slo.late += h->late_us > late_us;
    s->slo.again += again;
    s->slo.again_late += again && h->late_us > late_us;
    s->slo.again_later += again && h->later_us > late_us;
}

/* At most once a second: a crash of this process loses the counts of one second. */
static int write_slo(struct settler *s, struct err *e)
{
    int64_t now_ms = clock_monotonic_ms();
    if (s->slo.delivered == 0 ||
        (now_ms - s->slo_ms < SLO_EVERY_MS && !runtime_stopping(s->runtime, STOP_SETTLER)))
        return 0;
    s->slo.peak =
        s->slo.delivered * 1000 / (now_ms - s->slo_ms > SLO_EVERY_MS ? now_ms - s->slo_ms : SLO_EVERY_MS);
    s->slo_ms = now_ms;
    if (slo_add(s->pg, &s->slo, e) != 0) {
        if (pg_is_broken(s->pg) || e->kind == ERR_AWAY)
            return -1;
        failing_note("settler: counting lateness", e); /* that holds up no message */
        err_clear(e);
        return 0;
    }
    failing_over("settler: counting lateness");
    s->slo = (struct slo_count){0};
    return 0;
}

/* A message that ends undelivered is a line with its id, by which traces are joined. A flood of them is some
 * lines and a number. */
static void say_end(struct settler *s, const struct inflight *h)
{
    char name[INFLIGHT_NAME_SIZE];
    if (h->outcome != SETTLE_FAILED && h->outcome != SETTLE_EXPIRED)
        return;
    if (log_quota_take(&s->ends, 1, inflight_name(h, name), "failed or expired"))
        log_warning("message %s %s: %s", name, h->outcome == SETTLE_FAILED ? "failed" : "expired",
                    h->error ? h->error : "no reason is known");
}

static void finish_message(struct settler *s, size_t i)
{
    count_delivery(s, s->batch.messages[i]);
    say_end(s, s->batch.messages[i]);
    settle_handings_mark(&s->handings, s->batch.messages[i]);
    if (inflight_is_relayed(s->batch.messages[i]))
        exit_table_done(&s->pipeline->exits, s->batch.messages[i]->message.id);
    result_queue_free(&s->pipeline->results, s->batch.messages[i]);
    s->batch.messages[i] = NULL;
}

/* What of the batch its rows say, or the ranges are to say now. */
static int settle_ranges_of_batch(struct settler *s, const bool *done, struct err *e)
{
    for (size_t i = 0; i < s->batch.count; i++)
        if (s->batch.messages[i] && s->batch.items[i].in_batch && (!done || done[i]))
            settle_ranges_mark(&s->ranges, s->batch.messages[i]);
    return settle_ranges_write(&s->ranges, s->pg, &s->forgotten, e);
}

/* Somebody's open transaction holds rows of this batch: settles the others without waiting. */
static int settle_around_locks(struct settler *s, struct err *e)
{
    bool done[SETTLE_BATCH_MAX];
    const struct settle_owner o = owner_of(s, 0);
    if (settle_free(s->pg, &o, s->batch.items, s->batch.count, done, e) != 0 ||
        settle_ranges_of_batch(s, done, e) != 0)
        return -1;
    for (size_t i = 0; i < s->batch.count; i++) {
        if (done[i])
            finish_message(s, i);
        else
            keep_for_later(s, i);
    }
    return 0;
}

/* PostgreSQL rejects something in this batch: settles one by one, so that only the faulty one loses its error
 * text. */
static int settle_singly(struct settler *s, struct err *e)
{
    for (size_t i = 0; i < s->batch.count; i++) {
        const struct settle_owner o = owner_of(s, i);
        if (settle(s->pg, &o, &s->batch.items[i], 1, e) >= 0) {
            if (s->batch.items[i].in_batch) {
                settle_ranges_mark(&s->ranges, s->batch.messages[i]);
                if (settle_ranges_write(&s->ranges, s->pg, &s->forgotten, e) != 0)
                    return -1;
            }
            finish_message(s, i);
            continue;
        }
        if (pg_is_broken(s->pg) || e->kind == ERR_AWAY)
            return -1;
        char name[INFLIGHT_NAME_SIZE];
        log_warning("cannot record the outcome of message %s: %s", inflight_name(s->batch.messages[i], name),
                    e->text);
        inflight_set_error(s->batch.messages[i], INFLIGHT_REFUSED, NULL);
        keep_for_later(s, i);
    }
    return 0;
}

/* Fewer rows were changed than expected. Another gateway may have recorded the delivery, or the row is as
 * before its claim or hand-over, which the database has lost. */
static int say_again(struct settler *s, struct err *e)
{
    static struct message_id ids[SETTLE_BATCH_MAX];
    size_t n = 0;
    for (size_t i = 0; i < s->batch.count; i++)
        if (s->batch.items[i].kind == SETTLE_DELIVERED && !s->batch.items[i].in_batch)
            ids[n++] = s->batch.items[i].id;
    int64_t forgotten = history_say_delivered(s->pg, ids, n, e);
    s->forgotten += forgotten > 0 ? forgotten : 0;
    return forgotten < 0 ? -1 : 0;
}

/* The database may have forgotten a message that is to be tried again: RabbitMQ has it until that is known.
 */
static bool look_up_unended(struct settler *s, size_t i)
{
    struct inflight *h = s->batch.messages[i];
    if (h->outcome == SETTLE_DELIVERED || h->outcome == SETTLE_FAILED || h->outcome == SETTLE_EXPIRED ||
        !exit_table_look_up(&s->pipeline->exits, h->message.id))
        return false;
    result_queue_free(&s->pipeline->results, h);
    s->batch.messages[i] = NULL;
    notifier_notify(&s->pipeline->lookup_notifier);
    return true;
}

/* Some relayed rows were not as expected: most likely settled by another gateway, or locked. -1: unknown. */
static int finish_relayed(struct settler *s, const struct settle_owner *o, struct err *e)
{
    struct message_id ids[SETTLE_BATCH_MAX];
    enum relay_stands stands[SETTLE_BATCH_MAX];
    for (size_t i = 0; i < s->batch.count; i++)
        ids[i] = s->batch.items[i].id;
    if (relay_look(s->pg, o->instance, ids, s->batch.count, stands, e) != 0)
        return -1;
    for (size_t i = 0; i < s->batch.count; i++) {
        if (stands[i] == RELAY_PENDING)
            keep_for_later(s, i);
        else if (stands[i] != RELAY_ABSENT || !look_up_unended(s, i))
            finish_message(s, i);
    }
    return 0;
}

static int settle_batch(struct settler *s, struct err *e)
{
    const struct settle_owner o = owner_of(s, 0);
    if (clock_monotonic_ms() < s->around_ms)
        return settle_around_locks(s, e);
    int64_t changed = settle(s->pg, &o, s->batch.items, s->batch.count, e);
    bool missed = changed >= 0 && changed < settle_count(s->batch.items, s->batch.count);
    if (missed && say_again(s, e) != 0)
        return -1;
    if (o.relayed && missed)
        return finish_relayed(s, &o, e);
    if (changed >= 0) {
        if (settle_ranges_of_batch(s, NULL, e) != 0)
            return -1;
        for (size_t i = 0; i < s->batch.count; i++)
            finish_message(s, i);
        return 0;
    }
    if (pg_is_broken(s->pg) || e->kind == ERR_AWAY) /* libpq without memory: the answer is lost, too */
        return -1;
    bool locked = e->kind == ERR_BUSY;
    err_clear(e);
    if (!locked)
        return settle_singly(s, e);
    s->around_ms = clock_monotonic_ms() + AROUND_MS;
    return settle_around_locks(s, e);
}

/* The connection was lost, so the outcome of the commit is unknown. Recording `delivered`, `failed` or
 * `expired` twice is harmless, and so is any outcome of relayed messages and of messages that go back with
 * their range, which has another name when it is claimed again. Putting a message back twice is not: this
 * gateway may have claimed it again in between. Such a message is left to the end of the instance, which
 * releases it in doubt. */
static void on_unclear(struct settler *s)
{
    for (size_t i = s->batch.count; i-- > 0;) {
        struct inflight *h = s->batch.messages[i];
        if (!h)
            continue;
        if (inflight_is_relayed(h) || settle_batch_may_repeat(h->outcome) || inflight_goes_back(h)) {
            settle_backlog_put_back(&s->backlog, h);
            continue;
        }
        lease_end_instance(s->lease, h->instance);
        result_queue_free(&s->pipeline->results, h);
    }
}

static void gather_results(struct settler *s)
{
    if (s->later && clock_monotonic_ms() >= s->later_ms) {
        settle_backlog_add(&s->backlog, s->later);
        s->later = NULL;
    }
    int64_t wait_ms = settle_backlog_is_empty(&s->backlog) ? 100 : 0;
    settle_backlog_add(&s->backlog, result_queue_take_all(&s->pipeline->results, wait_ms));
}

/* Counts and logs deliveries that the database had lost, or that could not be recorded while it was
 * unavailable. */
static void note_forgotten(struct settler *s)
{
    if (s->forgotten == 0)
        return;
    metrics_add(&s->runtime->metrics, METRIC_SAID_AGAIN, (uint64_t)s->forgotten);
    log_info("%" PRId64 " deliver%s missing in the database %s recorded now", s->forgotten,
             s->forgotten == 1 ? "y" : "ies", s->forgotten == 1 ? "is" : "are");
    s->forgotten = 0;
}

/* The database may have lost its last commits, or more after a restore or fail-over: records them again.
 * Locked rows are left out, as if they were lost. -1: the connection is lost. */
static int repeat_outcomes(struct settler *s, struct err *e)
{
    static struct message_id ids[SETTLE_BATCH_MAX];
    bool all = atomic_exchange(&s->lease->went_back, false);
    uint64_t at = 0;
    settle_ranges_repeat(s->ranges, s->lease);
    settle_handings_repeat(&s->handings);
    if (settle_ranges_write(&s->ranges, s->pg, &s->forgotten, e) != 0 ||
        settle_handings_write(&s->handings, s->pg, e) != 0)
        return -1;
    for (size_t n;
         (n = delivered_ring_repeat(&s->pipeline->delivered, &at, all, ids, SETTLE_BATCH_MAX)) > 0;) {
        int64_t forgotten = history_say_delivered(s->pg, ids, n, e);
        if (forgotten < 0 && (pg_is_broken(s->pg) || e->kind == ERR_AWAY))
            return -1;
        if (forgotten < 0)
            failing_note("settler: recording outcomes again", e);
        err_clear(e);
        s->forgotten += forgotten > 0 ? forgotten : 0;
    }
    if (settle_ranges_are_written(s->ranges)) /* else they are locked */
        atomic_store(&s->lease->forgotten, false);
    return 0;
}

/* Settles the waiting messages. -1: the connection is lost. */
static int settle_once(struct settler *s, struct err *e)
{
    if (lease_has_forgotten(s->lease) && repeat_outcomes(s, e) != 0)
        return -1;
    note_forgotten(s);
    if (write_slo(s, e) != 0)
        return -1;
    if (settle_ranges_write(&s->ranges, s->pg, &s->forgotten, e) != 0 ||
        settle_handings_write(&s->handings, s->pg, e) != 0)
        return -1;
    gather_results(s);
    settle_batch_take(&s->batch, &s->backlog, clock_monotonic_ms());
    if (s->batch.count == 0)
        return 0;
    bool relayed = inflight_is_relayed(s->batch.messages[0]);
    if (settle_batch(s, e) != 0) {
        on_unclear(s);
        return -1;
    }
    atomic_store(&s->pipeline->settled_ms, clock_monotonic_ms());
    if (relayed)
        notifier_notify(&s->pipeline->relay_notifier); /* once for all that it may acknowledge now */
    if (s->batch.count < SMALL && settle_backlog_is_empty(&s->backlog) &&
        !runtime_stopping(s->runtime, STOP_PUBLISHERS))
        result_queue_gather(&s->pipeline->results, s->batch.count < FEW ? GATHER_FEW_MS : GATHER_MS);
    return 0;
}

/* Not the longest pauses: unrecorded deliveries are repeated if this gateway dies. */
static void take_nap(unsigned *attempt)
{
    int64_t ms = server_status_pause_ms(attempt);
    clock_nap_ms(ms < NAP_MAX_MS ? ms : NAP_MAX_MS);
}

void *settler_thread(void *arg)
{
    struct settler *s = arg;
    struct err e = {0};
    unsigned attempt = 0;
    int64_t give_up_ns = INT64_MAX;
    settle_backlog_open(&s->backlog);
    s->handings.unwritten = &s->pipeline->handings;
    for (;;) {
        if (runtime_stopping(s->runtime, STOP_SETTLER)) {
            if (give_up_ns == INT64_MAX)
                give_up_ns = clock_monotonic_ns() + GIVE_UP_MS * INT64_C(1000000);
            gather_results(s);
            bool all = settle_backlog_is_empty(&s->backlog) && !s->later && s->slo.delivered == 0 &&
                       settle_ranges_are_written(s->ranges) && atomic_load(&s->pipeline->handings) == 0;
            if (all || clock_monotonic_ns() > give_up_ns)
                break;
        }
        if (!s->pg && sessions_open_database(s->runtime, &s->pg, "postdate settler", settle_setup, &e) != 0) {
            take_nap(&attempt);
            continue;
        }
        if (settle_once(s, &e) == 0) {
            failing_over("settler");
            attempt = 0;
            continue;
        }
        failing_note("settler", &e);
        lease_say_again(s->lease, false);
        if (attempt > 0) /* the first time at once: unrecorded deliveries are repeated if this gateway dies */
            take_nap(&attempt);
        attempt += attempt == 0;
        pg_close(s->pg);
        s->pg = NULL;
    }
    inflight_free_list(s->backlog.first[0]);
    inflight_free_list(s->backlog.first[1]);
    inflight_free_list(s->later);
    settle_ranges_close(&s->ranges);
    settle_handings_close(&s->handings);
    pg_close(s->pg);
    return NULL;
}
