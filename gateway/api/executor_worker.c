/* Workers: look-ups and operations on stored messages, one request at a time each. Operations by filter may
 * take minutes, so they have threads of their own: nobody's look-up or cancel waits for them. */
#include "gateway/api/api_guard.h"
#include "gateway/api/api_operation.h"
#include "gateway/api/executor_internal.h"

#include "gateway/runtime/log.h"
#include "sql/operate/idempotency.h"

#define TRIES 3

struct worker {
    struct executor *executor;
    struct executor_session session;
    struct api_context context;
    bool has_secret;
};

static int prepare_session(struct worker *w, struct err *e)
{
    if (executor_session_connect(&w->session, e) != 0)
        return -1;
    w->context.pg = w->session.pg;
    if (!w->has_secret && idempotency_secret(w->session.pg, w->context.secret, e) != 0)
        return -1;
    w->has_secret = true;
    return executor_session_now(&w->session, &w->context.now_ms, e);
}

static void run_request(struct worker *w, struct api_request *r)
{
    struct err e = {0};
    int rc = -1;
    w->context.wrote = w->context.wake = w->context.idle = false;
    /* A connection that died while idle is noticed at the first use. */
    for (int i = 0; i < TRIES && rc != 0 && !w->context.wrote; i++) {
        err_clear(&e);
        rc = prepare_session(w, &e);
        if (rc == 0)
            rc = api_run(&w->context, r, &e);
        if (rc != 0 && e.kind != ERR_AWAY)
            break; /* a lock in the way was waited for already */
    }
    if (w->context.wake)
        notifier_notify(&w->executor->runtime->claimer_notifier);
    if (rc == 0)
        return;
    log_debug("http: %s", e.text);
    if (w->context.wrote)
        api_fail(&r->answer, API_UNKNOWN_OUTCOME, "the database went away in the middle");
    else if (!atomic_load(&w->executor->runtime->stored_ready))
        api_fail(&r->answer, API_NOT_READY, "the gateway is starting, or waits for the database");
    else
        api_fail_err(&r->answer, &e);
}

static void serve_queue(struct executor *d, struct executor_queue *queue, const char *name)
{
    struct worker w = {.executor = d, .session = {.runtime = d->runtime, .name = name}};
    w.context.rules = config_accept_rules(d->runtime->config);
    w.context.lead_ms = d->runtime->config->delivery.lead_ms;
    w.context.objective = executor_objective(d->runtime->config);
    w.context.ending = &d->ending;
    for (bool ended = false; !ended;) {
        struct api_request *r = executor_queue_take(queue, 500, &ended);
        if (r == NULL)
            continue;
        run_request(&w, r);
        if (api_is_change(r, w.context.idle))
            api_audit(r);
        r->done(r);
    }
    executor_session_close(&w.session);
}

void *executor_worker(void *arg)
{
    struct executor *d = arg;
    serve_queue(d, &d->work, "postdate http");
    return NULL;
}

void *executor_bulk_worker(void *arg)
{
    struct executor *d = arg;
    serve_queue(d, &d->bulk, "postdate http bulk");
    return NULL;
}
