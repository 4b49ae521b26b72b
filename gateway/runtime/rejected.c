#include "gateway/runtime/rejected.h"

#include "amqp/inspect/policy_trial.h"
#include "core/base/names.h"
#include "core/message/wire.h"
#include "gateway/runtime/sessions.h"

#include <stdio.h>

#define ANSWER_MS 2000 /* who calls reads nothing meanwhile */
#define SLOW_MS 1000
#define AGAIN_MS 200
#define PAUSE_MS 5000
#define PAUSE_MAX_MS 60000
#define SAY_EVERY_MS 60000

static struct broker *open_connection(const struct runtime *rt, struct err *e)
{
    struct broker_options o = sessions_broker_options(rt, "postdate rejected");
    o.connect_timeout_ms = ANSWER_MS;
    struct broker *b = broker_open(&o, e);
    if (b && broker_confirm_select(b, e) != 0) {
        broker_drop(b);
        b = NULL;
    }
    return b;
}

static int publish_with(struct broker *b, const struct accept_input *origin, struct bytes body,
                        const char *reason, struct err *e)
{
    struct buf properties;
    buf_init(&properties, 1 << 20);
    reject_headers_build(origin, reason, &properties);
    return broker_publish_to_queue(b, broker_names.rejected, &properties, body, NULL, e);
}

static int publish_one(struct broker *b, const struct rejected *r, struct err *e)
{
    char reason[512];
    struct bytes body = r->input.body.data ? r->input.body : bytes_of("", 0);
    snprintf(reason, sizeof reason, "%.*s", (int)r->reason.len,
             r->reason.data ? (const char *)r->reason.data : "");
    int rc = publish_with(b, &r->input, body, reason, e);
    if (rc != 0 && e->kind == ERR_REJECT && !broker_is_dead(b)) {
        /* The headers do not fit any more with ours: keep the reason, where it was published, and the body.
         */
        struct accept_input bare = {.exchange = r->input.exchange, .routing_key = r->input.routing_key};
        rc = publish_with(b, &bare, body, reason, e);
    }
    return rc;
}

static size_t note_ack(struct rejected *list, size_t sent, const struct broker_event *ev)
{
    size_t confirmed = 0;
    for (uint64_t tag = ev->multiple ? 1 : ev->tag; tag > 0 && tag <= ev->tag && tag <= sent; tag++) {
        confirmed += !list[tag - 1].done;
        list[tag - 1].done = true;
    }
    return confirmed;
}

static int wait_confirms(struct broker *b, struct rejected *list, size_t sent, struct err *e)
{
    const unsigned kinds = 1u << BROKER_EVENT_ACK | 1u << BROKER_EVENT_NACK | 1u << BROKER_EVENT_RETURN;
    struct arena arena;
    int rc = 0;
    arena_init(&arena, 1 << 20);
    for (size_t confirmed = 0; rc == 0 && confirmed < sent;) {
        struct broker_event ev;
        int came = broker_await_event(b, kinds, ANSWER_MS, &arena, &ev, e);
        if (came < 0)
            rc = -1;
        else if (came == 0)
            rc = err_set(e, ERR_AWAY, "no confirm from RabbitMQ for rejected messages within %d s",
                         ANSWER_MS / 1000);
        else if (ev.kind == BROKER_EVENT_RETURN) /* the acks that follow mean nothing */
            rc = err_set(e, ERR_AWAY, "the queue %s is missing", broker_names.rejected);
        else if (ev.kind == BROKER_EVENT_NACK)
            rc = err_set(e, ERR_BUSY, "the queue %s does not accept messages (is it full?)",
                         broker_names.rejected);
        else
            confirmed += note_ack(list, sent, &ev);
    }
    arena_free(&arena);
    return rc;
}

static int publish_all(const struct runtime *rt, struct rejected *list, size_t count, struct err *e)
{
    struct broker *b = open_connection(rt, e);
    int rc = b ? 0 : -1;
    for (size_t i = 0; i < count && rc == 0; i++) {
        list[i].done = false;
        rc = publish_one(b, &list[i], e);
    }
    if (rc == 0)
        rc = wait_confirms(b, list, count, e);
    broker_end(b, rc == 0);
    return rc;
}

int rejected_publish(const struct runtime *rt, struct rejected_pace *pace, struct rejected *list,
                     size_t count, struct err *e)
{
    int64_t began_ms = clock_monotonic_ms();
    if (began_ms < pace->again_ms)
        return err_set(e, ERR_BUSY, "%s", pace->why);
    int rc = publish_all(rt, list, count, e);
    int64_t now_ms = clock_monotonic_ms();
    bool slow = rc != 0 && now_ms - began_ms >= SLOW_MS;
    if (!slow)
        pace->pause_ms = 0;
    else if (pace->pause_ms < PAUSE_MAX_MS)
        pace->pause_ms = pace->pause_ms == 0 ? PAUSE_MS : 2 * pace->pause_ms;
    pace->again_ms = rc == 0 ? 0 : now_ms + (slow ? pace->pause_ms : AGAIN_MS);
    if (rc != 0)
        snprintf(pace->why, sizeof pace->why, "%s", e->text);
    return rc;
}

const char *rejected_name(struct bytes properties, char out[REJECTED_NAME_SIZE])
{
    struct wire_properties p;
    struct bytes value = {0};
    char shown[120];
    const char *what = NULL;
    if (wire_properties_read(properties, &p, NULL) == 0) {
        if (wire_find_string(p.headers, "x-postdate-id", &value))
            what = "x-postdate-id";
        else if ((p.flags & WIRE_MESSAGE_ID) && p.message_id.len > 0) {
            what = "message-id";
            value = p.message_id;
        } else if (wire_find_string(p.headers, "traceparent", &value))
            what = "traceparent";
    }
    if (what)
        snprintf(out, REJECTED_NAME_SIZE, "%s %s", what, bytes_printable(value, shown, sizeof shown));
    else
        snprintf(out, REJECTED_NAME_SIZE, "without an id");
    return out;
}

void rejected_say_moved(struct log_quota *quota, const struct rejected *list, size_t count, const char *what)
{
    char name[REJECTED_NAME_SIZE];
    rejected_name(list[0].input.properties, name);
    if (log_quota_take(quota, count, name, "moved to the queue of rejected messages"))
        log_warning("moved %zu %s%s to %s, the first (%s) because: %.*s", count, what, count == 1 ? "" : "s",
                    broker_names.rejected, name, (int)list[0].reason.len,
                    list[0].reason.data ? (const char *)list[0].reason.data : "");
}

void rejected_say_waits(struct rejected_pace *pace, const struct rejected *list, size_t count,
                        const char *what, const struct err *e)
{
    char name[REJECTED_NAME_SIZE];
    if (!log_is_due(&pace->said_ms, SAY_EVERY_MS))
        return;
    log_warning("cannot move %zu rejected %s%s to %s, trying again; the first (%s): %s", count, what,
                count == 1 ? "" : "s", broker_names.rejected, rejected_name(list[0].input.properties, name),
                e->text);
}

void rejected_say_cure(const struct runtime *rt, const char *queue, int64_t *said_ms)
{
    struct err ignored;
    char vhost[256] = "/", how[900];
    if (!log_is_due(said_ms, SAY_EVERY_MS))
        return;
    broker_url_vhost(rt->config->amqp.url, vhost, sizeof vhost, &ignored);
    log_warning("if RabbitMQ cannot convert a message in '%s', this moves it to %s within a minute "
                "or two: %s; clear that policy afterwards",
                queue, broker_names.rejected, policy_cure(vhost, queue, how, sizeof how));
}
