#include "gateway/retry/retry.h"

#include "amqp/topology/topology.h"
#include "core/base/names.h"

#define AGAIN_MS 200
#define PREFETCH (1500 + RETRY_ASIDE_MAX)

static int connect_retry(struct inbox *box, struct err *e)
{
    static const struct broker_consumer consumer = {broker_names.retry, "postdate.retry"};
    struct retry *r = box->own;
    int64_t us;
    if (store_clock(box->pg, &us, e) != 0)
        return -1;
    r->opened_ms = us / 1000;
    box->consumers = &consumer;
    box->consumer_count = 1;
    box->prefetch = PREFETCH;
    box->queue = broker_names.retry;
    box->most = RETRY_BATCH_MAX;
    return topology_declare_retry(box->broker, e) != 0 ? -1 : inbox_consume(box, e);
}

static void disconnect_retry(struct inbox *box)
{
    struct retry *r = box->own;
    r->aside_count = 0;
}

/* What lies on a day that somebody has locked is not stored now, so it is not counted either. */
static int write_failures(void *ctx, struct pg *c, struct err *e)
{
    struct retry *r = ctx;
    struct lineage_failure *some =
        arena_alloc(&r->inbox.arena, (r->write_until - r->write_from) * sizeof *some);
    size_t n = 0;
    if (!some)
        return err_set(e, ERR_BUG, "out of memory");
    for (size_t i = r->write_from; i < r->write_until; i++) {
        const struct store_item *item = r->failures[i].item;
        if (!item || item->result == STORE_ACCEPTED)
            some[n++] = r->failures[i].failure;
    }
    return lineage_write(c, some, n, e);
}

static int store_some(struct retry *r, struct store_item *items, size_t count, struct err *e)
{
    const struct store_extra extra = {.after = write_failures, .ctx = r};
    const struct store_options o = {.extra = &extra, .locks = &r->locks};
    if (store_accept(r->inbox.pg, &o, items, count, e) != 0)
        return -1;
    runtime_ring_claimer(r->runtime, items, count, store_begun_ms(r->inbox.pg));
    return 0;
}

static void give_verdict(struct retry *r, const struct retry_failure *f)
{
    bool stored = !f->item || f->item->result == STORE_ACCEPTED;
    if (stored)
        metrics_add(&r->runtime->metrics, f->item ? METRIC_SENT_BACK : METRIC_DEAD, 1);
    if (!f->item && r->dead_count++ == 0)
        r->first_dead = f;
    r->inbox.deliveries[f->delivery].verdict = stored ? INBOX_DONE : INBOX_LATER;
}

/* One transaction for what waits and for what is counted. What PostgreSQL refuses, it would refuse each time:
 * then they are stored one by one, and the guilty one is refused. -1: nothing is sure. */
static int store_failures(struct retry *r, size_t from, size_t until, struct err *e)
{
    struct store_item *items = r->failures[from].item;
    bool one = until - from == 1;
    r->write_from = from;
    r->write_until = until;
    if (store_some(r, one ? items : r->items, one ? items != NULL : r->item_count, e) == 0) {
        for (size_t i = from; i < until; i++)
            give_verdict(r, &r->failures[i]);
        return 0;
    }
    if (e->kind != ERR_REJECT)
        return -1;
    if (one)
        inbox_refuse(&r->inbox, &r->inbox.deliveries[r->failures[from].delivery], e->text,
                     METRIC_REJECTED_DATABASE);
    err_clear(e);
    for (size_t i = from; i < until && !one; i++)
        if (store_failures(r, i, i + 1, e) != 0)
            return -1;
    return 0;
}

/* What consumers see; what was published past Postdate has it from its first return on. */
static struct message_id id_of(const struct retry_delivery *d)
{
    return d->letter.has_lineage ? d->letter.id : d->lineage;
}

static void say_dead(struct retry *r)
{
    size_t n = r->dead_count;
    const struct retry_failure *first = r->first_dead;
    char id[MESSAGE_ID_TEXT_SIZE], queue[80];
    if (n == 0)
        return;
    const struct retry_delivery *d = &r->deliveries[first->delivery];
    message_id_format(id_of(d), id);
    if (log_quota_take(&r->dead, n, id, "refused for good by consumers"))
        log_warning(
            "%zu message%s refused for good by consumers; the first: %s, after %d deliver%s, in queue "
            "%s",
            n, n == 1 ? " was" : "s were", id, first->failure.failed,
            first->failure.failed == 1 ? "y" : "ies", bytes_printable(d->letter.queue, queue, sizeof queue));
}

static void say_second_copies(struct retry *r)
{
    size_t n = r->copy_count;
    const struct retry_delivery *first = r->first_copy;
    char id[MESSAGE_ID_TEXT_SIZE], queue[80];
    if (n == 0)
        return;
    metrics_add(&r->runtime->metrics, METRIC_REFUSAL_KNOWN, n);
    log_info("%zu refusal%s counted already, delivered again by RabbitMQ, left out; the first: attempt %d of "
             "%s in queue %s",
             n, n == 1 ? " was" : "s were", first->letter.attempt, message_id_format(id_of(first), id),
             bytes_printable(first->letter.queue, queue, sizeof queue));
}

/* RabbitMQ delivers them before all others. While postdate.rejected takes nothing, one of the refused asks
 * now and then whether it does. */
static int give_back(struct retry *r, struct err *e)
{
    int64_t now_ms = clock_monotonic_ms(), paused_until_ms = r->inbox.pace.again_ms;
    size_t left = 0, most = paused_until_ms == 0 ? RETRY_BATCH_MAX : now_ms >= paused_until_ms;
    if (r->aside_count == 0 || now_ms < r->aside_again_ms)
        return 0;
    r->aside_again_ms = now_ms + AGAIN_MS;
    for (size_t i = 0; i < r->aside_count; i++) {
        struct retry_aside a = r->aside[i];
        if (a.refused && most == 0) {
            r->aside[left++] = a;
            continue;
        }
        most -= a.refused;
        if (broker_reject(r->inbox.broker, a.tag, true, e) != 0)
            return -1;
    }
    r->aside_count = left;
    return 0;
}

/* To be offered again later, while all others go on. What is too much for that comes again at once, and
 * before all others: so these wait. */
static int set_aside(struct retry *r, struct err *e)
{
    struct inbox *box = &r->inbox;
    bool full = false;
    for (size_t i = 0; i < box->count; i++) {
        const struct inbox_delivery *d = &box->deliveries[i];
        if (d->verdict == INBOX_DONE)
            continue;
        full = r->aside_count == RETRY_ASIDE_MAX;
        if (!full)
            r->aside[r->aside_count++] = (struct retry_aside){d->tag, d->reason.len > 0};
        else if (broker_reject(box->broker, d->tag, true, e) != 0)
            return -1;
    }
    if (full)
        notifier_wait(&box->notifier, -1, AGAIN_MS * INT64_C(1000000));
    return 0;
}

static int work_retry(struct inbox *box, struct err *e)
{
    struct retry *r = box->own;
    if (give_back(r, e) != 0)
        return -1;
    if (box->count == 0)
        return inbox_check_consumers(box, e);
    if (retry_decide(r, e) != 0 || (r->failure_count > 0 && store_failures(r, 0, r->failure_count, e) != 0))
        return -1;
    say_dead(r);
    inbox_reject(box);
    say_second_copies(r);
    return inbox_acknowledge(box, r->aside_count == 0, e) != 0 ? -1 : set_aside(r, e);
}

void *retry_thread(void *arg)
{
    static const struct inbox_kind kind = {.name = "retry",
                                           .session = "postdate retry",
                                           .what = "dead letter",
                                           .connect = connect_retry,
                                           .disconnect = disconnect_retry,
                                           .work = work_retry};
    struct retry *r = arg;
    r->inbox.runtime = r->runtime;
    r->inbox.own = r;
    inbox_run(&r->inbox, &kind);
    return NULL;
}
