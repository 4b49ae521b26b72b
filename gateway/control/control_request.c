#include "gateway/control/control_request.h"

#include "core/base/names.h"
#include "core/message/headers.h"
#include "core/message/wire.h"
#include "gateway/ops/api_operation.h"

#include <stdlib.h>
#include <string.h>

#define ARENA_MAX (CONTROL_BODY_MAX + 512 * 1024)

struct control_request *control_request_open(struct control *c)
{
    struct control_request *o = calloc(1, sizeof *o);
    if (o == NULL)
        return NULL;
    o->control = c;
    o->api.from = "the control queue";
    o->api.by_control = true;
    arena_init(&o->arena, ARENA_MAX);
    api_answer_open(&o->api.answer);
    api_json_request_open(&o->parsed, CONTROL_BODY_MAX);
    return o;
}

void control_request_close(struct control_request *o)
{
    if (o == NULL)
        return;
    tokens_release(&o->grant);
    api_json_request_close(&o->parsed);
    api_answer_close(&o->api.answer);
    arena_free(&o->arena);
    free(o);
}

/* A message-id makes the request one that is done once, however often it comes: like Idempotency-Key. */
static int take_key(struct control_request *o, struct bytes message_id)
{
    static const char prefix[] = "control:"; /* keys that came over HTTP are others */
    size_t n = sizeof prefix - 1;
    if (message_id.len == 0)
        return 0;
    if (!bytes_is_text(message_id) || n + message_id.len > sizeof o->key) {
        api_fail(&o->api.answer, API_INVALID_REQUEST, "message-id: is not UTF-8 text");
        return -1;
    }
    memcpy(o->key, prefix, n);
    memcpy(o->key + n, message_id.data, message_id.len);
    o->api.idempotency_key = bytes_of(o->key, n + message_id.len);
    return 0;
}

int control_request_read(struct control_request *o, const struct broker_event *ev)
{
    struct api_answer *a = &o->api.answer;
    struct wire_properties p = {0};
    struct err e = {0};
    o->tag = ev->tag;
    int readable = wire_properties_read(ev->properties, &p, &e);
    o->reply_to = p.reply_to; /* those of headers that are refused, too */
    o->correlation_id = p.correlation_id;
    if (readable != 0) {
        api_fail(a, API_INVALID_REQUEST, "properties: %s", e.text);
        return -1;
    }
    if (headers_check_request(p.headers, &e) != 0) {
        api_fail(a, API_INVALID_REQUEST, "%s", e.text);
        return -1;
    }
    o->body = ev->body;
    if (ev->body.data == NULL && ev->body.len > 0) {
        api_fail(a, API_TOO_LARGE, "the request has %zu bytes: allowed are up to %zu here, more over HTTP",
                 ev->body.len, CONTROL_BODY_MAX);
        return -1;
    }
    if (take_key(o, p.message_id) != 0 || api_json_request_read(&o->parsed, o->body, &o->api) != 0)
        return -1;
    if (!o->api.op->needs_key || o->api.idempotency_key.len > 0)
        return 0;
    api_fail(a, API_INVALID_REQUEST,
             "to %s by a filter, set a message-id: should this request be delivered twice, it is "
             "done once",
             o->api.op->name);
    return -1;
}

int control_request_admit(struct control_request *o, struct tokens *tokens)
{
    tokens_release(&o->grant);
    if (tokens_admit(tokens, api_json_request_token(&o->parsed), &o->grant, &o->api.answer) != 0)
        return -1;
    o->api.scope = o->grant.scope;
    return 0;
}

/* May a request that was begun be repeated? */
static bool is_repeatable(const struct control_request *o)
{
    enum api_effect effect = o->api.op->effect;
    return effect == API_READS || effect == API_IDEMPOTENT ||
           (effect == API_KEYED && o->api.idempotency_key.len > 0);
}

bool control_request_may_wait(const struct control_request *o)
{
    if (o->api.answer.status < 500)
        return false;
    switch (o->api.answer.problem) {
    case API_DATABASE_AWAY:
    case API_NOT_READY:
        return true;
    case API_UNKNOWN_OUTCOME:
        return is_repeatable(o);
    default:
        return false;
    }
}

void control_request_reset(struct control_request *o)
{
    struct api_answer *a = &o->api.answer;
    buf_reset(&a->body);
    a->status = a->retry_after_s = 0;
    a->problem = API_OK;
    a->made = 0;
    o->api.give_up_ms = o->api.retry_at_ms = 0;
}

bool control_request_answer(const struct control_request *o, const char *intake_queue, struct buf *properties,
                            struct buf *body)
{
    const struct api_answer *a = &o->api.answer;
    /* An answer is no message to be delayed, and no request. */
    if (o->reply_to.len == 0 || bytes_start_with_str(o->reply_to, broker_names.own) ||
        bytes_start_with_str(o->reply_to, intake_queue))
        return false;
    struct wire_properties p = {
        .flags = WIRE_CONTENT_TYPE,
        .content_type = bytes_of_str(a->status >= 400 ? "application/problem+json" : "application/json"),
        .correlation_id = o->correlation_id};
    if (o->correlation_id.len > 0)
        p.flags |= WIRE_CORRELATION_ID;
    buf_reset(properties);
    buf_reset(body);
    wire_properties_write(&p, properties);
    api_json_request_print(a, body);
    return !properties->failed && !body->failed;
}
