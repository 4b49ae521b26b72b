/* The retry thread: reads consumers' rejections, decides each, and stores what returns and what is dead. */
#include "gateway/deliver/retry.h"
#include "amqp/topology/topology.h"
#include "core/base/names.h"
#include "core/message/delay.h"
#include "gateway/runtime/sessions.h"

#include <stdio.h>
#include <string.h>

/* --- To which lineage a rejection belongs, and whether it was counted before.
 *
 * RabbitMQ may deliver a rejection twice. If a gateway died, the second delivery is flagged as redelivered:
 * it is left out if the same rejection was counted before this connection was opened. A rejection counted on
 * this connection is acknowledged on it, or the connection ends, so it cannot be redelivered here (although
 * RabbitMQ 4.3 flags other deliveries, too). If a quorum queue's dead-letter worker restarts after a fault,
 * the second delivery is not flagged: it cannot be told from an equal message that a client published with
 * the same headers. So it returns, too, with its own count. */

static const struct lineage *ask(struct retry *r, const struct retry_delivery *d, struct message_id id)
{
    struct lineage *l = &r->lineages[r->lineage_count++];
    *l = (struct lineage){.id = id, .queue = d->letter.queue, .refusal = d->letter.refusal};
    return l;
}

/* Reads the lineages of all deliveries to decide. Does not change the database. */
static int retry_read_lineages(struct retry *r, struct err *e)
{
    r->lineage_count = 0;
    for (size_t i = 0; i < r->inbox.count; i++) {
        struct retry_delivery *d = &r->deliveries[i];
        if (d->taken->verdict != INBOX_OPEN)
            continue;
        d->known = d->letter.has_lineage ? ask(r, d, d->letter.lineage) : NULL;
        d->own = d->letter.is_named ? ask(r, d, d->letter.refusal) : NULL;
    }
    return r->lineage_count > 0 ? lineage_read(r->inbox.pg, r->lineages, r->lineage_count, r->opened_ms, e)
                                : 0;
}

/* What this batch counts for that lineage already; NULL: nothing. */
static const struct lineage_failure *find_failure(const struct retry *r, struct message_id id,
                                                  struct bytes queue)
{
    for (size_t i = 0; i < r->failure_count; i++) {
        const struct lineage_failure *f = &r->failures[i].failure;
        if (message_id_equal(f->id, id) && bytes_equal(f->queue, queue))
            return f;
    }
    return NULL;
}

/* Of two equal deliveries in one batch, one may have been counted before, the other not. */
static bool is_second_copy(const struct retry *r, size_t i)
{
    const struct retry_delivery *d = &r->deliveries[i];
    if (!d->taken->redelivered || !((d->known && d->known->counted) || (d->own && d->own->counted)))
        return false;
    for (size_t j = 0; j < i; j++)
        if (r->deliveries[j].is_second_copy &&
            message_id_equal(r->deliveries[j].letter.refusal, d->letter.refusal))
            return false;
    return true;
}

static struct message_id new_lineage(struct retry *r, const struct retry_delivery *d)
{
    uint8_t random[16];
    if (d->own && !d->own->found && !find_failure(r, d->letter.refusal, d->letter.queue))
        return d->letter.refusal;
    random_fill(random, sizeof random);
    return dead_letter_random_lineage(random);
}

/* How many deliveries have failed with delivery i, whose lineage is chosen then. 0: it has been counted
 * before. -1: the batch counts another refusal of its lineage; offer it again. */
static int retry_count_failures(struct retry *r, size_t i)
{
    struct retry_delivery *d = &r->deliveries[i];
    const struct lineage *known = d->known;
    const struct lineage_failure *other = known ? find_failure(r, known->id, d->letter.queue) : NULL;
    if (is_second_copy(r, i)) {
        d->is_second_copy = true;
        if (r->copy_count++ == 0)
            r->first_copy = d;
        return 0;
    }
    if (known && (!known->found || (!known->dead && d->letter.attempt > known->failed))) {
        d->lineage = known->id;
        if (!other)
            return d->letter.attempt;
        /* One transaction counts one failure of a lineage. */
        if (!other->dead && d->letter.attempt > other->failed)
            return -1;
    }
    /* Consumers may treat messages with the same id as the same message: so they must be the same. */
    const uint8_t *hash = other ? other->hash : known && known->found ? known->hash : NULL;
    bool same = hash && memcmp(hash, d->letter.hash, sizeof d->letter.hash) == 0;
    d->lineage = new_lineage(r, d);
    if (!same)
        d->letter.id = d->lineage;
    return 1;
}

/* --- What becomes of each refusal. */

#define LINEAGE_KEEP_MS (INT64_C(30) * 86400000) /* after it went back: its queue may be long */

static int read_letter(struct retry *r, struct retry_delivery *d, struct err *e)
{
    const struct accept_input *input = &d->taken->input;
    size_t most = (size_t)r->runtime->config->intake.max_body;
    if (!input->body.data && input->body.len > 0)
        err_set(e, ERR_REJECT, "body: %zu bytes could not be read", input->body.len);
    else if (input->body.len > most)
        err_set(e, ERR_REJECT, "body: %zu bytes are too many (allowed: at most %zu, intake.max_body)",
                input->body.len, most);
    else if (dead_letter_read(input, &d->letter, e) == 0)
        return 0;
    if (e->kind != ERR_REJECT)
        return -1;
    inbox_mark_rejected(&r->inbox, d->taken, e->text, METRIC_REJECTED_INVALID);
    err_clear(e);
    return 0;
}

static int read_all(struct retry *r, struct err *e)
{
    for (size_t i = 0; i < r->inbox.count; i++) {
        struct retry_delivery *d = &r->deliveries[i];
        *d = (struct retry_delivery){.taken = &r->inbox.deliveries[i]};
        if (read_letter(r, d, e) != 0)
            return -1;
    }
    return retry_read_lineages(r, e);
}

static int add_item(struct retry *r, size_t i, int failed, int64_t now_ms, struct err *e)
{
    struct retry_delivery *d = &r->deliveries[i];
    struct store_item *item = &r->items[r->item_count];
    struct message *m = &item->message;
    *item = (struct store_item){.redelivered = d->taken->redelivered};
    *m = (struct message){.due_ms = now_ms + d->wait_ms,
                          .counted_from_ms = now_ms,
                          .deadline_ms = deadline_of(d->letter.properties.headers),
                          .exchange = bytes_of_str(RETURN_EXCHANGE),
                          .routing_key = d->letter.routing_key,
                          .body = d->taken->input.body,
                          .hold = HOLD_GATEWAY};
    if (dead_letter_return(&d->letter, d->lineage, failed + 1, &r->inbox.arena, &m->properties, e) != 0)
        return -1;
    m->id = message_id_new(m->due_ms);
    r->item_count++;
    return 0;
}

static int add_failure(struct retry *r, size_t i, int failed, const struct retry_policy *p, struct err *e)
{
    struct retry_delivery *d = &r->deliveries[i];
    bool dead = d->dead;
    struct retry_failure *f = &r->failures[r->failure_count++];
    *f = (struct retry_failure){.delivery = i, .item = dead ? NULL : &r->items[r->item_count - 1]};
    f->failure = (struct lineage_failure){.id = d->lineage,
                                          .refusal = d->letter.refusal,
                                          .queue = d->letter.queue,
                                          .exchange = d->letter.exchange,
                                          .routing_key = d->letter.routing_key,
                                          .failed = failed,
                                          .reason = d->too_late ? DEATH_DEADLINE : d->letter.reason,
                                          .hash = d->letter.hash,
                                          .dead = dead,
                                          .message = dead ? NULL : &f->item->message.id,
                                          .body = d->taken->input.body,
                                          .deadline_ms = deadline_of(d->letter.properties.headers),
                                          .keep_ms = dead ? p->keep_dead_ms : d->wait_ms + LINEAGE_KEEP_MS};
    return dead ? dead_letter_return(&d->letter, d->lineage, 1, &r->inbox.arena, &f->failure.properties, e)
                : 0;
}

/* Does its deadline lie before that? */
static bool ends_before(const struct retry_delivery *d, int64_t ms)
{
    int64_t deadline_ms = deadline_of(d->letter.properties.headers);
    return deadline_ms > 0 && deadline_ms < ms;
}

static int decide(struct retry *r, size_t i, const struct retry_policy *p, int64_t now_ms, struct err *e)
{
    struct retry_delivery *d = &r->deliveries[i];
    int failed = retry_count_failures(r, i);
    if (failed <= 0) {
        d->taken->verdict = failed == 0 ? INBOX_DONE : INBOX_LATER;
        return 0;
    }
    bool again = (p->on & d->letter.reason) != 0 && failed < p->attempts;
    d->wait_ms = again ? retry_policy_wait_ms(p, failed, random_u32()) : 0;
    int64_t most_ms = r->runtime->config->delivery.max_delay_ms; /* there are no days beyond it */
    d->wait_ms = d->wait_ms < most_ms ? d->wait_ms : most_ms;
    d->too_late = again && ends_before(d, now_ms + d->wait_ms);
    d->dead = !again || d->too_late;
    if (!d->dead && add_item(r, i, failed, now_ms, e) != 0)
        return -1;
    return add_failure(r, i, failed, p, e);
}

/* Gives each delivery its verdict, the items to those that wait, the failures to all that count. Reads the
 * database only. */
static int retry_decide(struct retry *r, struct err *e)
{
    struct retry_policy *policies;
    size_t policy_count;
    int64_t now_ms; /* about: waits are counted again when the batch is stored (store_accept) */
    r->item_count = r->failure_count = r->dead_count = r->copy_count = 0;
    if (lineage_policies(r->inbox.pg, &r->inbox.arena, &policies, &policy_count, e) != 0 ||
        sessions_now_ms(r->runtime, r->inbox.pg, &now_ms, e) != 0 || read_all(r, e) != 0)
        return -1;
    for (size_t i = 0; i < r->inbox.count; i++) {
        const struct retry_delivery *d = &r->deliveries[i];
        if (d->taken->verdict == INBOX_OPEN &&
            decide(r, i, retry_policy_find(policies, policy_count, d->letter.queue), now_ms, e) != 0)
            return -1;
    }
    return 0;
}

/* --- The thread. */

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
    return topology_declare_parts(box->broker, TOPOLOGY_RETRY, 1, e) != 0 ? -1 : inbox_consume(box, e);
}

static void disconnect_retry(struct inbox *box)
{
    struct retry *r = box->own;
    r->aside_count = 0;
}

/* Messages on a locked day are not stored now, so they are not counted. */
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

/* One transaction for waiting messages and counts. PostgreSQL would reject the same content each time: then
 * they are stored one by one, and the faulty one is rejected. -1: the outcome is unknown. */
static int store_failures(struct retry *r, size_t from, size_t until, struct err *e)
{
    struct store_item *items = r->failures[from].item;
    bool one = until - from == 1;
    r->write_from = from;
    r->write_until = until;
    if (store_some(r, one ? items : r->items, one ? items != NULL : r->item_count, e) == 0) {
        for (size_t i = from; i < until; i++) {
            bool stored = !r->failures[i].item || r->failures[i].item->result == STORE_ACCEPTED;
            if (stored)
                metrics_add(&r->runtime->metrics, r->failures[i].item ? METRIC_SENT_BACK : METRIC_DEAD, 1);
            if (!r->failures[i].item && r->dead_count++ == 0)
                r->first_dead = &r->failures[i];
            r->inbox.deliveries[r->failures[i].delivery].verdict = stored ? INBOX_DONE : INBOX_LATER;
        }
        return 0;
    }
    if (e->kind != ERR_REJECT)
        return -1;
    if (one)
        inbox_mark_rejected(&r->inbox, &r->inbox.deliveries[r->failures[from].delivery], e->text,
                            METRIC_REJECTED_DATABASE);
    err_clear(e);
    for (size_t i = from; i < until && !one; i++)
        if (store_failures(r, i, i + 1, e) != 0)
            return -1;
    return 0;
}

/* The id that consumers see; messages that were not published through Postdate have it from their first
 * return on. */
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
    if (log_quota_take(&r->dead, n, id, "rejected for good by consumers"))
        log_warning(
            "%zu message%s rejected for good by consumers; the first: %s, after %d deliver%s, in queue "
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
    log_info("ignored %zu rejection%s that RabbitMQ redelivered after being counted; the first: attempt %d "
             "of %s in queue %s",
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

/* Sets deliveries aside for later, while others continue. Deliveries without room for that would be
 * redelivered at once, before all others: so these wait. */
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
