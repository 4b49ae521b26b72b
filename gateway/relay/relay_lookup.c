/* Rows that are looked up before they are published are claimed by id (relay_book.h). What comes is an
 * ordinary claimed message. On a thread of its own, so that the relay waits for nothing; between two claims
 * it also finds out what is lost (relay_rescue.h). */
#include "gateway/pipeline/claimed_row.h"
#include "gateway/relay/relay_rescue.h"
#include "gateway/runtime/log.h"
#include "sql/pipeline/relay.h"

#define QUESTIONS 500
#define CLAIM_BYTES (4 * 1024 * 1024)
#define TICK_MS 50
#define BUSY_MS 5     /* there is more, or no memory for it */
#define AGAIN_MS 1000 /* somebody has it locked, or has not written down yet that RabbitMQ holds it */
#define LOCK_TIMEOUT_MS 100

struct lookup {
    struct runtime *runtime;
    struct pipeline *pipeline;
    struct lease *lease;
    struct pg *pg;
    int32_t instance;
    struct relay_question questions[QUESTIONS];
    bool claimed[QUESTIONS];
    size_t count;
    int64_t look_sent_ns; /* claimed_row_hear_clock */
    bool contentless;     /* the rows of this claim */
    struct relay_rescue rescue;
};

static void mark_claimed(struct lookup *k, struct message_id id)
{
    for (size_t i = 0; i < k->count; i++)
        if (message_id_equal(k->questions[i].id, id))
            k->claimed[i] = true;
}

/* Nobody has published it, as far as the database knows. */
static bool keep_row(struct lookup *k, const struct claimed_row *row)
{
    int64_t now_ms;
    bool refused;
    claimed_row_hear_clock(k->lease, k->runtime, row, &k->look_sent_ns);
    struct inflight *h = claimed_row_to_inflight(k->pipeline, row, k->instance, &refused);
    if (!h)
        return false;
    if (refused) {
        pipeline_settle(k->pipeline, h, SETTLE_FAILED);
    } else if (runtime_now_ms(k->runtime, &now_ms) &&
               row->message.due_ms > now_ms + 2 * k->runtime->config->delivery.lead_ms + 1000) {
        h->in_doubt = false; /* it came much too early: not a byte was sent by anybody */
        h->next_at_ms = h->message.due_ms;
        pipeline_settle(k->pipeline, h, SETTLE_HOLD);
    } else if (due_queue_push(&k->pipeline->fast, h) != 0) {
        inflight_free(h);
        return false;
    }
    return true;
}

static bool on_row(void *ctx, const struct claimed_row *row)
{
    struct lookup *k = ctx;
    mark_claimed(k, row->message.id);
    if (k->contentless || keep_row(k, row))
        return true;
    lease_end_instance(k->lease); /* it is claimed, and not in memory */
    return false;
}

static int claim(struct lookup *k, bool sent, struct err *e)
{
    struct message_id ids[QUESTIONS];
    size_t n = 0;
    for (size_t i = 0; i < k->count; i++)
        if (k->questions[i].sent == sent)
            ids[n++] = k->questions[i].id;
    if (n == 0)
        return 0;
    const struct relay_claim q = {
        .instance = k->instance, .ids = ids, .count = n, .bytes_max = CLAIM_BYTES, .content = !sent};
    k->contentless = sent;
    k->look_sent_ns = clock_monotonic_ns();
    int claimed = relay_claim(k->pg, &q, on_row, k, e);
    if (claimed < 0 && e->kind == ERR_AWAY) /* it may have been committed */
        lease_end_instance(k->lease);
    return claimed;
}

/* Those that could not be claimed: are they settled, or somebody's, or will they be? Nothing waits for more
 * than grace: what is rescued then is published by whoever claims it. */
static int answer(struct lookup *k, bool progress, struct err *e)
{
    struct relay_book *book = &k->pipeline->book;
    struct message_id ids[QUESTIONS];
    bool pending[QUESTIONS];
    int64_t now_ms = 0, clock_ms = clock_monotonic_ms();
    size_t n = 0;
    for (size_t i = 0; i < k->count; i++)
        if (!k->claimed[i])
            ids[n++] = k->questions[i].id;
    if (n > 0 && relay_pending(k->pg, k->instance, ids, n, pending, e) != 0)
        return -1;
    runtime_now_ms(k->runtime, &now_ms);
    for (size_t i = 0, j = 0; i < k->count; i++) {
        const struct relay_question *q = &k->questions[i];
        bool wait = !k->claimed[i] && pending[j++];
        bool overdue = now_ms >= message_id_due_ms(q->id) + k->runtime->config->handover.grace_ms;
        if (wait && (progress || !overdue)) /* with progress: perhaps there was no room for its content */
            relay_book_again(book, q, progress ? clock_ms : clock_ms + AGAIN_MS);
        else
            relay_book_done(book, q->id);
    }
    notifier_notify(&k->pipeline->relay_notifier);
    return 0;
}

static void ask_again(struct lookup *k)
{
    for (size_t i = 0; i < k->count; i++)
        relay_book_again(&k->pipeline->book, &k->questions[i], clock_monotonic_ms() + TICK_MS);
    k->count = 0;
}

/* How long to sleep, or -1. */
static int64_t look_up(struct lookup *k, struct err *e)
{
    int64_t now_ms = runtime_latest_ms(k->runtime);
    k->instance = lease_instance(k->lease);
    if (!k->instance || now_ms == INT64_MAX)
        return TICK_MS;
    if (atomic_load(&k->pipeline->claimed.bytes) >= INFLIGHT_BYTES_MAX ||
        atomic_load(&k->pipeline->claimed.count) >= INFLIGHT_COUNT_MAX)
        return BUSY_MS;
    k->count =
        relay_book_questions(&k->pipeline->book, now_ms, clock_monotonic_ms(), k->questions, QUESTIONS);
    if (k->count == 0)
        return TICK_MS;
    for (size_t i = 0; i < k->count; i++)
        k->claimed[i] = false;
    int sent = claim(k, true, e), unsent = sent < 0 ? -1 : claim(k, false, e);
    if (unsent < 0 || answer(k, unsent > 0, e) != 0) {
        ask_again(k);
        return -1;
    }
    return k->count == QUESTIONS || unsent > 0 ? 0 : TICK_MS;
}

static void run_connected(struct lookup *k, struct err *e)
{
    while (!runtime_stopping(k->runtime, STOP_INTAKE)) {
        int64_t nap_ms = relay_rescue_look(&k->rescue, k->pg, e) == 0 ? look_up(k, e) : -1;
        if (nap_ms < 0 && (pg_is_broken(k->pg) || !err_is_transient(e)))
            return;
        if (nap_ms < 0) {
            log_debug("relay look-up: %s", e->text);
            err_clear(e);
        }
        if (nap_ms != 0)
            notifier_wait(&k->pipeline->lookup_notifier, -1, (nap_ms < 0 ? TICK_MS : nap_ms) * 1000000);
    }
}

void *relay_lookup_thread(void *arg)
{
    struct relay *relay = arg;
    static struct lookup k;
    struct err e = {0};
    unsigned attempt = 0;
    k.runtime = relay->runtime;
    k.pipeline = relay->pipeline;
    k.lease = relay->lease;
    relay_rescue_init(&k.rescue, relay);
    while (!runtime_stopping(k.runtime, STOP_INTAKE)) {
        k.pg = pg_open(k.runtime->config->postgres.url, "postdate relay", &e);
        if (!k.pg || claim_setup(k.pg, LOCK_TIMEOUT_MS, &e) != 0) {
            pg_close(k.pg);
            server_status_failed(&k.runtime->postgres, &e);
            notifier_wait(&k.pipeline->lookup_notifier, -1, server_status_pause_ms(&attempt) * 1000000);
            continue;
        }
        server_status_succeeded(&k.runtime->postgres);
        attempt = 0;
        relay_rescue_connected(&k.rescue);
        err_clear(&e);
        run_connected(&k, &e);
        if (e.kind != ERR_NONE)
            log_debug("relay look-up: %s", e.text);
        pg_close(k.pg);
    }
    relay_rescue_close(&k.rescue);
    return NULL;
}
