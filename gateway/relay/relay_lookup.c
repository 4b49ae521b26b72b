/* Rows that are looked up before they are published are claimed by id (relay_book.h). What comes is an
 * ordinary claimed message. On a thread of its own, so that the relay waits for nothing; between two claims
 * it also finds out what is lost (relay_rescue.h). */
#include "gateway/pipeline/claim_loop.h"
#include "gateway/relay/relay_adopt.h"
#include "gateway/relay/relay_rescue.h"
#include "gateway/runtime/failing.h"
#include "gateway/runtime/log.h"
#include "sql/pipeline/relay.h"

#include <string.h>

#define QUESTIONS 500
#define CLAIM_BYTES (4 * 1024 * 1024)
#define TICK_MS 50
#define BUSY_MS 5     /* there is more, or no memory for it */
#define AGAIN_MS 1000 /* somebody has it locked */
#define LOCK_TIMEOUT_MS 100

struct lookup {
    struct claim_loop loop;
    struct relay_question questions[QUESTIONS];
    bool claimed[QUESTIONS];
    bool unknown[QUESTIONS]; /* to the database, and it cannot be stored now */
    size_t count;
    bool contentless; /* the rows of this claim */
    struct relay_rescue rescue;
    struct relay_adopting adopting;
    struct log_quota said_absent;
};

static void mark_claimed(struct lookup *lookup, struct message_id id)
{
    for (size_t i = 0; i < lookup->count; i++)
        if (message_id_equal(lookup->questions[i].id, id))
            lookup->claimed[i] = true;
}

/* Nobody has published it, as far as the database knows. */
static bool keep_row(struct claim_loop *l, const struct claimed_row *row)
{
    int64_t now_ms;
    bool refused;
    claimed_row_hear_clock(l->lease, l->runtime, row, &l->sent_ns);
    struct inflight *h = claimed_row_to_inflight(l->pipeline, row, l->instance, &refused);
    if (!h)
        return false;
    if (refused) {
        pipeline_settle(l->pipeline, h, SETTLE_FAILED);
    } else if (runtime_now_ms(l->runtime, &now_ms) &&
               row->message.due_ms > now_ms + 2 * l->runtime->config->delivery.lead_ms + 1000) {
        h->in_doubt = false; /* it came much too early: not a byte was sent by anybody */
        h->next_at_ms = h->message.due_ms;
        pipeline_settle(l->pipeline, h, SETTLE_HOLD);
    } else if (due_queue_push(&l->pipeline->fast, h) != 0) {
        inflight_free(h);
        return false;
    }
    return true;
}

static bool on_row(void *ctx, const struct claimed_row *row)
{
    struct lookup *lookup = ctx;
    mark_claimed(lookup, row->message.id);
    if (lookup->contentless || row->aside || keep_row(&lookup->loop, row))
        return true;
    lease_end_instance(lookup->loop.lease, lookup->loop.instance); /* it is claimed, and not in memory */
    return false;
}

static int claim_rows(struct lookup *lookup, bool sent, struct err *e)
{
    struct claim_loop *l = &lookup->loop;
    struct message_id ids[QUESTIONS];
    size_t n = 0;
    for (size_t i = 0; i < lookup->count; i++)
        if (lookup->questions[i].sent == sent)
            ids[n++] = lookup->questions[i].id;
    if (n == 0)
        return 0;
    const struct relay_claim q = {
        .instance = l->instance, .ids = ids, .count = n, .bytes_max = CLAIM_BYTES, .content = !sent};
    lookup->contentless = sent;
    l->sent_ns = clock_monotonic_ns();
    int claimed = relay_claim(l->pg, &q, on_row, lookup, e);
    if (claimed < 0 && e->kind == ERR_AWAY) /* it may have been committed */
        lease_end_instance(l->lease, l->instance);
    return claimed;
}

/* Neither published nor delivered by what the database knows: somebody removed their rows, or it forgot them.
 */
static void note_absent(struct lookup *lookup, struct message_id first, size_t count)
{
    char id[MESSAGE_ID_TEXT_SIZE];
    if (count == 0)
        return;
    metrics_add(&lookup->loop.runtime->metrics, METRIC_ABSENT, count);
    if (log_quota_take(&lookup->said_absent, count, message_id_format(first, id), "without a row"))
        log_warning(
            "%zu message%s came out of RabbitMQ of which the database has no row, and %s not delivered; "
            "the first: %s",
            count, count == 1 ? "" : "s", count == 1 ? "is" : "are", id);
}

static void answer(struct relay_book *book, const struct relay_question *q)
{
    inflight_free(q->kept);
    relay_book_answer(book, q->id);
}

/* Those that could not be claimed: are they settled, or somebody's, or will they be? Nothing waits for more
 * than grace: what is rescued then is published by whoever claims it. */
static int answer_questions(struct lookup *lookup, bool progress, struct err *e)
{
    struct claim_loop *l = &lookup->loop;
    struct relay_book *book = &l->pipeline->book;
    struct message_id ids[QUESTIONS];
    enum relay_stands stands[QUESTIONS];
    int64_t now_ms = 0, clock_ms = clock_monotonic_ms();
    struct message_id absent = {0};
    size_t n = 0, absents = 0;
    for (size_t i = 0; i < lookup->count; i++)
        if (!lookup->claimed[i])
            ids[n++] = lookup->questions[i].id;
    if (n > 0 && relay_look(l->pg, l->instance, ids, n, stands, e) != 0)
        return -1;
    runtime_now_ms(l->runtime, &now_ms);
    for (size_t i = 0, j = 0; i < lookup->count; i++) {
        const struct relay_question *q = &lookup->questions[i];
        enum relay_stands s = lookup->claimed[i] ? RELAY_SETTLED : stands[j++];
        bool overdue = now_ms >= message_id_due_ms(q->id) + l->runtime->config->handover.grace_ms;
        if (lookup->unknown[i])
            relay_book_again(book, q, clock_ms + AGAIN_MS);
        else if (s == RELAY_PENDING &&
                 (progress || !overdue)) /* with progress: perhaps there was no room for its content */
            relay_book_again(book, q, progress ? clock_ms : clock_ms + AGAIN_MS);
        else {
            if (s == RELAY_ABSENT && !q->sent && absents++ == 0)
                absent = q->id;
            answer(book, q);
        }
    }
    note_absent(lookup, absent, absents);
    notifier_notify(&l->pipeline->relay_notifier);
    return 0;
}

static void ask_again(struct lookup *lookup)
{
    for (size_t i = 0; i < lookup->count; i++)
        relay_book_again(&lookup->loop.pipeline->book, &lookup->questions[i], clock_monotonic_ms() + TICK_MS);
    lookup->count = 0;
}

/* How long to sleep, or -1. */
static int64_t look_up_messages(struct lookup *lookup, struct err *e)
{
    struct claim_loop *l = &lookup->loop;
    int64_t now_ms = runtime_latest_ms(l->runtime);
    l->instance = lease_instance(l->lease);
    if (!l->instance || now_ms == INT64_MAX)
        return TICK_MS;
    if (atomic_load(&l->pipeline->claimed.bytes) >= INFLIGHT_BYTES_MAX ||
        atomic_load(&l->pipeline->claimed.count) >= INFLIGHT_COUNT_MAX)
        return BUSY_MS;
    lookup->count =
        relay_book_questions(&l->pipeline->book, now_ms, clock_monotonic_ms(), lookup->questions, QUESTIONS);
    if (lookup->count == 0)
        return TICK_MS;
    memset(lookup->claimed, 0, sizeof lookup->claimed);
    int known = relay_adopt(&lookup->adopting, l, lookup->questions, lookup->count, lookup->unknown, e);
    int sent = known < 0 ? -1 : claim_rows(lookup, true, e),
        unsent = sent < 0 ? -1 : claim_rows(lookup, false, e);
    if (unsent < 0 || answer_questions(lookup, unsent > 0, e) != 0) {
        ask_again(lookup);
        return -1;
    }
    return lookup->count == QUESTIONS || unsent > 0 ? 0 : TICK_MS;
}

static int64_t look(struct claim_loop *l, struct err *e)
{
    static const char rescuing[] = "relay look-up: what RabbitMQ lost is not looked for now";
    struct lookup *lookup = l->own;
    if (relay_rescue_look(&lookup->rescue, l->pg, e) != 0) {
        if (pg_is_broken(l->pg))
            return -1;
        failing_note_seldom(rescuing, e); /* looking up goes on */
        err_clear(e);
    } else {
        failing_over(rescuing);
    }
    relay_rescue_declare(&lookup->rescue, l->pg);
    return look_up_messages(lookup, e);
}

static void begin_connection(struct claim_loop *l)
{
    relay_rescue_connected(&((struct lookup *)l->own)->rescue);
}

void *relay_lookup_thread(void *arg)
{
    static const struct claim_horizon taken = {
        .name = "postdate relay", .begin = begin_connection, .look = look};
    struct relay *relay = arg;
    static struct lookup lookup;
    lookup.loop = (struct claim_loop){.runtime = relay->runtime,
                                      .pipeline = relay->pipeline,
                                      .lease = relay->lease,
                                      .horizon = &taken,
                                      .notifier = &relay->pipeline->lookup_notifier,
                                      .own = &lookup,
                                      .lock_timeout_ms = LOCK_TIMEOUT_MS,
                                      .nap_ms = TICK_MS};
    relay_rescue_init(&lookup.rescue, relay);
    claim_loop_run(&lookup.loop);
    relay_rescue_close(&lookup.rescue);
    return NULL;
}
