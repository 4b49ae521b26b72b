/* A worker's session, and the queue of requests that wait for one. */
#include "core/base/share.h"
#include "gateway/ops/executor_internal.h"
#include "gateway/runtime/failing.h"
#include "gateway/runtime/guard.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"

#include <stdlib.h>
#include <time.h>

#define EXECUTOR_QUEUE_MAX 4096 /* requests that wait in one queue: twice the connections of HTTP */

/* --- Shared by the threads of the executor: connections, and the last known state of the database. */

int executor_session_connect(struct executor_session *session, struct err *e)
{
    struct runtime *rt = session->runtime;
    if (session->pg)
        pg_drain_notifies(session->pg); /* whether PostgreSQL has ended it meanwhile */
    if (session->pg && pg_is_broken(session->pg))
        executor_session_close(session);
    if (!session->pg && !atomic_load(&rt->stored_ready))
        return err_set(e, ERR_AWAY, "the gateway is starting");
    if (!session->pg && clock_monotonic_ms() < session->retry_at_ms)
        return err_set(e, ERR_AWAY, "the database was unavailable a moment ago");
    if (sessions_open_database(rt, &session->pg, session->name, session->hurried ? operate_hurry : NULL, e) ==
        0) {
        session->attempt = 0;
        return 0;
    }
    int64_t pause_ms = server_status_pause_ms(&session->attempt);
    session->retry_at_ms = clock_monotonic_ms() + (pause_ms < 1000 ? pause_ms : 1000);
    return -1;
}

void executor_session_failed(const struct executor_session *session, const char *what, const struct err *e)
{
    bool caller_is_to_blame = e->kind == ERR_REJECT || e->kind == ERR_NOT_FOUND;
    bool is_locked_out = session->pg && pg_is_locked_out(session->pg);
    if (caller_is_to_blame || is_locked_out || !session->pg)
        log_debug("%s: %s", what, e->text); /* the answer says it; or that the database is away, the log */
    else
        failing_note(what, e);
}

void executor_session_close(struct executor_session *session)
{
    pg_close(session->pg);
    session->pg = NULL;
}

bool executor_figures(struct executor *d, struct executor_figures *out)
{
    atomic_store(&d->counts_wanted, true);
    GUARD(&d->figures_lock);
    *out = d->figures;
    return out->counted_ms != 0;
}

struct slo_objective executor_objective(const struct config *c)
{
    return (struct slo_objective){
        .late_ms = c->slo.late_ms, .window_ms = c->slo.window_ms, .target = config_slo_target(c)};
}

const char *executor_why_not_ready(struct executor *d)
{
    return atomic_load(&d->why_not_ready);
}

/* --- Requests that wait for a thread of the executor. */

void executor_queue_open(struct executor_queue *q, int each, int crowd)
{
    *q = (struct executor_queue){.each = each, .crowd = crowd};
    guard_open_cond(&q->came);
    pthread_mutex_init(&q->lock, NULL);
}

void executor_queue_destroy(struct executor_queue *q)
{
    pthread_cond_destroy(&q->came);
    pthread_mutex_destroy(&q->lock);
}

void executor_queue_close(struct executor_queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    pthread_mutex_unlock(&q->lock);
    pthread_cond_broadcast(&q->came);
}

/* Behind the requests of its turn: the turn after the caller's last request, or the present one for a caller
 * without requests. */
static void put_in_turn(struct executor_queue *q, struct api_request *r)
{
    struct api_request **at;
    r->turn = q->turn;
    for (const struct api_request *x = q->first; x != NULL; x = x->next)
        if (x->caller == r->caller)
            r->turn = x->turn + 1;
    for (at = &q->first; *at != NULL && (*at)->turn <= r->turn;)
        at = &(*at)->next;
    r->next = *at;
    *at = r;
    q->count++;
}

static bool take_out(struct executor_queue *q, const struct api_request *r)
{
    struct api_request **at = &q->first;
    while (*at != NULL && *at != r)
        at = &(*at)->next;
    if (*at == NULL)
        return false;
    *at = r->next;
    q->count--;
    return true;
}

/* The queue is full: chooses the request to refuse. The requests of one caller are in order of arrival. */
static struct api_request *give_way(struct executor_queue *q, struct api_request *r)
{
    struct share *list = calloc(q->count + 1, sizeof *list);
    size_t n = 0;
    for (struct api_request *x = q->first; x != NULL && list != NULL; x = x->next, n++)
        list[n] = (struct share){.what = x, .caller = x->caller, .amount = 1, .since = (int64_t)n};
    const struct share *found = list != NULL ? share_find(list, n, r->caller, 1) : NULL;
    struct api_request *x = found != NULL ? found->what : r;
    free(list);
    if (x != r && take_out(q, x))
        put_in_turn(q, r);
    return x;
}

void executor_queue_put(struct executor_queue *q, struct api_request *r)
{
    struct api_request *refused = NULL;
    r->caller = api_caller(r);
    pthread_mutex_lock(&q->lock);
    bool closed = q->closed;
    if (closed)
        refused = r;
    else if (q->count == EXECUTOR_QUEUE_MAX)
        refused = give_way(q, r);
    else
        put_in_turn(q, r);
    if (refused != r)
        pthread_cond_broadcast(&q->came); /* not each of them takes everything */
    pthread_mutex_unlock(&q->lock);
    if (refused == NULL)
        return;
    if (closed)
        api_fail(&refused->answer, API_NOT_READY, "the gateway is stopping");
    else
        api_fail(&refused->answer, API_OVERLOADED,
                 "%d requests wait for the database already, and most of them are from this caller",
                 EXECUTOR_QUEUE_MAX);
    refused->done(refused);
}

bool executor_queue_remove(struct executor_queue *q, const struct api_request *r)
{
    GUARD(&q->lock);
    return take_out(q, r);
}

/* The caller has as many of the workers as it may. */
static bool has_enough(const struct executor_queue *q, const struct api_request *r)
{
    int served = 0, busy = 0;
    for (int i = 0; i < EXECUTOR_QUEUE_WORKERS; i++) {
        served += q->served[i] == r->caller;
        busy += q->served[i] != 0;
    }
    return q->each > 0 && served >= (busy < q->crowd ? q->each : 1);
}

/* The place of the next request; NULL: there is none that may be taken. */
static struct api_request **find_next(struct executor_queue *q, size_t most)
{
    struct api_request **at = &q->first;
    while (*at != NULL && ((*at)->body.len > most || has_enough(q, *at)))
        at = &(*at)->next;
    return *at != NULL ? at : NULL;
}

static struct api_request *take_next(struct executor_queue *q, int worker, size_t most)
{
    struct api_request **at = find_next(q, most), *r = at != NULL ? *at : NULL;
    if (r == NULL)
        return NULL;
    *at = r->next;
    q->count--;
    if (r->turn > q->turn)
        q->turn = r->turn;
    q->served[worker] = r->caller;
    return r;
}

/* What this worker would take sooner or later. */
static bool is_empty(const struct executor_queue *q, size_t most)
{
    const struct api_request *r = q->first;
    while (r != NULL && r->body.len > most)
        r = r->next;
    return r == NULL;
}

struct api_request *executor_queue_take(struct executor_queue *q, int worker, size_t most, int64_t wait_ms,
                                        bool *ended)
{
    int64_t until = clock_monotonic_ns() + wait_ms * 1000000;
    struct timespec t = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    GUARD(&q->lock);
    if (q->served[worker] != 0 && q->each > 0)
        pthread_cond_broadcast(&q->came);
    q->served[worker] = 0;
    while (find_next(q, most) == NULL && (!q->closed || !is_empty(q, most)) && wait_ms > 0 &&
           pthread_cond_timedwait(&q->came, &q->lock, &t) == 0)
        continue;
    struct api_request *r = take_next(q, worker, most);
    *ended = q->closed && is_empty(q, most) && r == NULL;
    return r;
}
