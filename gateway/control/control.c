/* The control queue: management over AMQP, for clients without HTTP.
 *
 *   postdate.control ─▶ this thread: to a request ─▶ executor (commits) ─▶ this thread: ack, then the answer
 *                                                                          to reply_to, by the default
 * exchange
 *
 * A request is acknowledged when its answer is made, so after the commit. If the gateway or RabbitMQ crashes
 * before that, the request is redelivered, which is harmless: show, list and cancel give the same answer;
 * schedule and operations by filter with a message-id are done once (the message-id is their
 * Idempotency-Key); reschedule gives the same due time or, with a delay, counts it again; a repeated retry
 * answers that the message is not failed. Only a schedule without message-id and key may be stored twice,
 * with two ids.
 *
 * The ack is sent before the answer: RabbitMQ closes the channel over an answer that it refuses, and the
 * request must not be redelivered for ever. A request that kills the gateway is moved to postdate.rejected by
 * the queue's delivery limit. While the database is unavailable, up to PREFETCH requests wait here,
 * unacknowledged; so do requests with an unknown outcome, if a repetition is safe (control_request_may_wait).
 */
#include "gateway/control/control.h"

#include "amqp/topology/topology.h"
#include "core/base/names.h"
#include "core/base/share.h"
#include "gateway/control/control_request.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"

#include <stdlib.h>
#include <time.h>

#define PREFETCH 16
#define STUCK_MS 2000 /* all places are used, and no request of the caller with the most ends */
#define TICK_MS 500
#define AGAIN_MS 500   /* between two tries while the database is away */
#define FINISH_MS 5000 /* at a stop, for requests in the executor */
#define CONTROL_QUEUE broker_names.control
#define TAG "postdate.control"

static const struct broker_consumer consumer = {CONTROL_QUEUE, TAG};

struct control {
    struct runtime *runtime;
    struct executor *executor;
    struct tokens *tokens;     /* NULL: http.tokens is off */
    struct notifier *notifier; /* of this thread */
    pthread_t thread;
    pthread_mutex_t lock;         /* guards done, and a change of broker */
    struct control_request *done; /* answered by the executor, in any order */
    /* The thread's: */
    struct broker *broker; /* control_join may shut it down */
    struct control_request *waiting, *spare;
    struct control_request *working[PREFETCH]; /* with the executor */
    uint64_t slow;         /* the caller who had the most of them when all were in hand, … */
    int64_t slow_since_ms; /* … and since when none of theirs has ended; monotonic */
    struct buf properties, body;
    uint64_t session;
    bool said;
    struct reopened reopened;
};

/* Called by a thread of the executor. */
static void on_done(struct api_request *api)
{
    struct control_request *o = (struct control_request *)api;
    struct control *c = o->control;
    pthread_mutex_lock(&c->lock);
    o->next = c->done;
    c->done = o;
    /* Under the lock: afterwards the control may be gone. */
    notifier_notify(c->notifier);
    pthread_mutex_unlock(&c->lock);
}

static int finish_request(struct control *c, struct control_request *o, struct err *e)
{
    int rc = 0;
    if (o->session == c->session && c->broker != NULL) {
        rc = broker_ack(c->broker, o->tag, false, e);
        if (rc == 0 &&
            control_request_answer(o, c->runtime->config->intake.queue, &c->properties, &c->body)) {
            rc = broker_publish(c->broker,
                                &(struct broker_message){.routing_key = o->reply_to,
                                                         .properties = buf_bytes(&c->properties),
                                                         .body = buf_bytes(&c->body)},
                                NULL, e);
            if (rc != 0 && e->kind == ERR_REJECT)
                rc = 0; /* not a name of a queue: so it is routed to none */
        }
    }
    control_request_close(o);
    return rc;
}

/* Replaces its place, or a free one (NULL), by another request, or none. Requests of a lost connection may
 * use all places: then those of the next connection are not recorded. */
static void note_working(struct control *c, const struct control_request *o, struct control_request *by)
{
    for (size_t i = 0; i < PREFETCH; i++)
        if (c->working[i] == o) {
            c->working[i] = by;
            break;
        }
    if (by != NULL) {
        by->began_ms = clock_monotonic_ms();
        by->taken = false;
    }
}

/* The caller with the most places; NULL: not all requests are in the executor, or no other caller is known to
 * wait for a place. */
static struct control_request *find_largest(struct control *c)
{
    struct share list[PREFETCH];
    size_t n = 0;
    for (; n < PREFETCH && c->tokens != NULL && c->working[n] != NULL; n++)
        list[n] = (struct share){.what = c->working[n],
                                 .caller = c->working[n]->api.caller,
                                 .amount = 1,
                                 .since = c->working[n]->began_ms,
                                 .stays = c->working[n]->taken};
    const struct share *found = n == PREFETCH ? share_find(list, n, 0, 0) : NULL;
    return found != NULL ? found->what : NULL;
}

/* RabbitMQ delivers in order, so the callers of requests still in the queue are unknown. So if all places are
 * used for long, the oldest request that no thread has begun, of the caller with the most places, is evicted.
 */
static void make_room(struct control *c)
{
    struct control_request *o;
    while ((o = find_largest(c)) != NULL) {
        if (o->api.caller != c->slow) {
            c->slow = o->api.caller;
            c->slow_since_ms = clock_monotonic_ms();
        }
        if (clock_monotonic_ms() - c->slow_since_ms < STUCK_MS)
            return;
        o->taken = !executor_withdraw(c->executor, &o->api);
        if (o->taken)
            continue;
        api_fail(&o->api.answer, API_OVERLOADED,
                 "%d requests of the control queue are pending already, most of them from this caller",
                 PREFETCH);
        o->gave_way = true;
        on_done(&o->api);
        return;
    }
}

/* To the executor, or back to its sender; or it waits. */
static int begin_request(struct control *c, struct control_request *o, struct err *e)
{
    if (control_request_admit(o, c->tokens) == 0) {
        atomic_fetch_add(&c->runtime->control_requests, 1);
        o->api.done = on_done;
        note_working(c, NULL, o);
        executor_submit(c->executor, &o->api);
        return 0;
    }
    if (!control_request_may_wait(o))
        return finish_request(c, o, e);
    o->again_ms = clock_monotonic_ms() + AGAIN_MS;
    o->next = c->waiting;
    c->waiting = o;
    return 0;
}

static struct control_request *take_done(struct control *c)
{
    pthread_mutex_lock(&c->lock);
    struct control_request *all = c->done;
    c->done = NULL;
    pthread_mutex_unlock(&c->lock);
    return all;
}

static int answer_done(struct control *c, struct err *e)
{
    int rc = 0;
    for (struct control_request *o = take_done(c), *next; o != NULL; o = next) {
        next = o->next;
        atomic_fetch_sub(&c->runtime->control_requests, 1);
        note_working(c, o, NULL);
        if (o->api.caller == c->slow && !o->gave_way)
            c->slow = 0; /* they go on */
        if (control_request_may_wait(o)) {
            o->again_ms = clock_monotonic_ms() + AGAIN_MS;
            o->next = c->waiting;
            c->waiting = o;
        } else if (rc == 0) {
            rc = finish_request(c, o, e);
        } else {
            control_request_close(o); /* the connection is lost: the request will be redelivered */
        }
    }
    return rc;
}

static int try_again(struct control *c, struct err *e)
{
    int rc = 0;
    struct control_request **at = &c->waiting;
    while (*at != NULL && rc == 0) {
        struct control_request *o = *at;
        if (o->session == c->session && o->again_ms > clock_monotonic_ms()) {
            at = &o->next;
            continue;
        }
        *at = o->next;
        if (o->session != c->session) {
            control_request_close(o);
            continue;
        }
        control_request_reset(o);
        rc = begin_request(c, o, e);
        at = &c->waiting; /* begin may have put it back in front, with a later time */
    }
    return rc;
}

/* 1: there may be more; 0: nothing came; -1. */
static int take_delivery(struct control *c, struct err *e)
{
    struct broker_event ev;
    if (c->spare == NULL && (c->spare = control_request_open(c)) == NULL)
        return err_set(e, ERR_BUG, "out of memory");
    struct control_request *o = c->spare;
    arena_reset(&o->arena);
    if (broker_next_event(c->broker, &o->arena, CONTROL_BODY_MAX, 0, &ev, e) != 0)
        return -1;
    if (ev.kind == BROKER_EVENT_CANCELLED)
        return err_set(e, ERR_AWAY, "RabbitMQ cancelled the consumer of %s", CONTROL_QUEUE);
    if (ev.kind != BROKER_EVENT_DELIVERY)
        return ev.kind != BROKER_EVENT_NONE;
    c->spare = NULL;
    o->session = c->session;
    int rc = control_request_read(o, &ev) == 0 ? begin_request(c, o, e) : finish_request(c, o, e);
    return rc == 0 ? 1 : -1;
}

static void set_broker(struct control *c, struct broker *b)
{
    pthread_mutex_lock(&c->lock);
    c->broker = b;
    pthread_mutex_unlock(&c->lock);
}

static int connect_control(struct control *c, struct err *e)
{
    struct runtime *rt = c->runtime;
    c->session++;
    set_broker(c, sessions_open_broker(rt, "postdate control", e));
    if (c->broker == NULL) {
        server_status_failed(&rt->rabbitmq, e);
        return -1;
    }
    reopened_begin(&c->reopened);
    if (topology_declare_parts(c->broker, TOPOLOGY_CONTROL, 1, e) ||
        broker_consume_all(c->broker, &consumer, 1, PREFETCH, e) != 0) {
        if (err_is_transient(e)) {
            server_status_failed(&rt->rabbitmq, e);
            reopened_end(&c->reopened, rt, e);
        } else if (log_turns(&c->said, true)) /* waiting does not cure it */
            log_error("the control queue can't be used: %s; trying again until it can", e->text);
        runtime_set_up(rt, UP_CONTROL); /* everything else works */
        return -1;
    }
    server_status_succeeded(&rt->rabbitmq);
    if (log_turns(&c->said, false))
        log_info("the control queue can be used again");
    runtime_set_up(rt, UP_CONTROL);
    return 0;
}

static void run_connected(struct control *c, struct err *e)
{
    struct runtime *rt = c->runtime;
    while (!runtime_stopping(rt, STOP_INTAKE)) {
        int more;
        if (answer_done(c, e) != 0 || try_again(c, e) != 0)
            return;
        while ((more = take_delivery(c, e)) > 0)
            continue;
        make_room(c);
        if (more < 0 || broker_check_consumers(c->broker, &consumer, 1, PREFETCH, e) != 0)
            return;
        if (!broker_has_pending(c->broker))
            notifier_wait(c->notifier, broker_fd(c->broker), TICK_MS * INT64_C(1000000));
    }
}

/* Requests in the executor are still answered; those that wait for the database are requeued. */
static void run_down(struct control *c, struct err *e)
{
    int64_t until_ms = clock_monotonic_ms() + FINISH_MS;
    if (broker_cancel_consume(c->broker, TAG, e) != 0)
        return;
    while (atomic_load(&c->runtime->control_requests) > 0 && clock_monotonic_ms() < until_ms) {
        notifier_wait(c->notifier, -1, TICK_MS / 10 * INT64_C(1000000));
        if (answer_done(c, e) != 0)
            return;
    }
    broker_flush(c->broker, e);
}

static void *control_thread(void *arg)
{
    struct control *c = arg;
    struct runtime *rt = c->runtime;
    unsigned attempt = 0;
    c->reopened.name = "control queue";
    while (!runtime_stopping(rt, STOP_INTAKE)) {
        struct err e = {0};
        if (connect_control(c, &e) == 0) {
            attempt = 0;
            run_connected(c, &e);
            if (e.kind != ERR_NONE)
                reopened_end(&c->reopened, rt, &e);
            /* RabbitMQ refuses an answer: logged, and the request is finished. */
            if (e.kind == ERR_PERMISSION || e.kind == ERR_REJECT || e.kind == ERR_NOT_FOUND)
                log_warning("control queue: an answer could not be published: %s", e.text);
        }
        if (runtime_stopping(rt, STOP_INTAKE) && c->broker != NULL && !broker_is_dead(c->broker))
            run_down(c, &e);
        struct broker *old = c->broker;
        set_broker(c, NULL);
        broker_close(old);
        if (!runtime_stopping(rt, STOP_INTAKE))
            notifier_wait(c->notifier, -1, server_status_pause_ms(&attempt) * 1000000);
    }
    return NULL;
}

struct control *control_open(struct runtime *rt, struct executor *executor, struct tokens *tokens,
                             struct notifier *notifier, struct err *e)
{
    struct control *c = calloc(1, sizeof *c);
    if (c == NULL) {
        err_set(e, ERR_BUG, "out of memory");
        return NULL;
    }
    c->runtime = rt;
    c->executor = executor;
    c->tokens = tokens;
    c->notifier = notifier;
    buf_init(&c->properties, 4096);
    buf_init(&c->body, API_ANSWER_MAX);
    pthread_mutex_init(&c->lock, NULL);
    if (pthread_create(&c->thread, NULL, control_thread, c) == 0)
        return c;
    pthread_mutex_destroy(&c->lock);
    free(c);
    err_set(e, ERR_BUG, "cannot start a thread: is the limit of processes reached?");
    return NULL;
}

void control_join(struct control *c)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until); /* ThreadSanitizer does not know pthread_clockjoin_np everywhere */
    until.tv_sec += 2 * FINISH_MS / 1000;
    if (pthread_timedjoin_np(c->thread, NULL, &until) == 0)
        return;
    /* A broker that takes nothing must not hold up the stop. */
    pthread_mutex_lock(&c->lock);
    if (c->broker != NULL)
        broker_shutdown(c->broker);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
}

static void close_all(struct control_request *o)
{
    for (struct control_request *next; o != NULL; o = next) {
        next = o->next;
        control_request_close(o);
    }
}

void control_close(struct control *c)
{
    if (c == NULL)
        return;
    close_all(take_done(c));
    close_all(c->waiting);
    control_request_close(c->spare);
    buf_free(&c->properties);
    buf_free(&c->body);
    pthread_mutex_destroy(&c->lock);
    free(c);
}
