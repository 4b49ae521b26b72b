/* Answers, and what can go wrong as problem objects. */
#include "gateway/json/json_document.h"
#include "gateway/json/json_memory.h"
#include "gateway/ops/api_internal.h"
#include "gateway/ops/api_operation.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define URN "urn:postdate:problem:"

static const struct problem {
    int status;
    const char *type, *title;
    int retry_after_s;
} problems[API_PROBLEM_COUNT] = {
    [API_OK] = {200, "about:blank", "OK", 0},
    [API_INVALID_JSON] = {400, URN "invalid-json", "The body is not valid JSON", 0},
    [API_INVALID_REQUEST] = {400, URN "invalid-request", "The request is not valid", 0},
    [API_INVALID_MESSAGE] = {422, URN "invalid-message", "The content is not acceptable", 0},
    [API_UNAUTHORIZED] = {401, URN "unauthorized", "A valid token is needed", 0},
    [API_EXCHANGE_NOT_ALLOWED] = {403, URN "exchange-not-allowed", "The token does not list this exchange",
                                  0},
    [API_ROLE_NOT_ALLOWED] = {403, URN "role-not-allowed", "The role of the token does not allow it", 0},
    [API_NOT_FOUND] = {404, URN "not-found", "There is nothing of this name", 0},
    [API_NO_SUCH_ROUTE] = {404, URN "no-such-route", "There is nothing at this address", 0},
    [API_METHOD_NOT_ALLOWED] = {405, URN "method-not-allowed", "The method is not allowed here", 0},
    [API_TOO_LATE] = {409, URN "too-late", "It is too late", 0},
    [API_KEY_TAKEN] = {409, URN "key-taken", "The key names another message", 0},
    [API_BUSY] = {409, URN "busy", "A gateway is publishing it", 1},
    [API_IN_PROGRESS] = {409, URN "in-progress", "A request with this Idempotency-Key is unfinished", 1},
    [API_PRECONDITION_FAILED] = {412, URN "precondition-failed", "It is not in the expected state", 0},
    [API_REQUEST_TIMEOUT] = {408, URN "request-timeout", "The request took too long", 0},
    [API_TOO_LARGE] = {413, URN "too-large", "The body is too large", 0},
    [API_TARGET_TOO_LONG] = {414, URN "target-too-long", "The request target is too long", 0},
    [API_HEAD_TOO_LARGE] = {431, URN "head-too-large", "The head of the request is too large", 0},
    [API_UNSUPPORTED_MEDIA_TYPE] = {415, URN "unsupported-media-type", "The body must be application/json",
                                    0},
    [API_IDEMPOTENCY_MISMATCH] = {422, URN "idempotency-mismatch",
                                  "The Idempotency-Key was used for another request", 0},
    [API_KEY_LOCKED] = {503, URN "key-locked", "The key is locked by an open transaction", 1},
    [API_DAY_LOCKED] = {503, URN "day-locked", "The day on which it is due is locked in the database", 5},
    [API_OVERLOADED] = {503, URN "overloaded", "Too much at once", 1},
    [API_DATABASE_AWAY] = {503, URN "database-away", "The database does not answer", 2},
    [API_UNKNOWN_OUTCOME] = {503, URN "unknown-outcome", "It may or may not have happened", 2},
    [API_NOT_READY] = {503, URN "not-ready", "The gateway is not ready", 2},
    [API_INTERNAL] = {500, URN "internal", "Internal error in Postdate", 0},
};

void api_answer_open(struct api_answer *a)
{
    *a = (struct api_answer){0};
    buf_init(&a->body, API_ANSWER_MAX);
}

void api_answer_close(struct api_answer *a)
{
    buf_free(&a->body);
}

const char *api_problem_type(enum api_problem p)
{
    return problems[p].type;
}

void api_dump(const json_t *value, struct api_answer *a)
{
    static const char full[] = "{\"type\":\"" URN "internal\",\"status\":500,\"title\":\"Out of memory\"}\n";
    buf_reset(&a->body);
    if (json_put(value, JSON_COMPACT, &a->body) == 0) {
        buf_put_str(&a->body, "\n");
        if (!a->body.failed)
            return;
    }
    buf_reset(&a->body);
    a->status = 500;
    buf_put_str(&a->body, full);
}

json_t *api_problem_object(enum api_problem p, const char *detail)
{
    struct json_memory_scope outer = json_memory_begin();
    json_t *o = json_object();
    json_t *text = json_string(detail);
    json_object_set_new(o, "type", json_string(problems[p].type));
    json_object_set_new(o, "title", json_string(problems[p].title));
    json_object_set_new(o, "status", json_integer(problems[p].status));
    json_object_set_new(o, "detail", text != NULL ? text : json_string("(the text is not valid UTF-8)"));
    if (json_memory_end(outer)) {
        json_decref(o);
        return NULL;
    }
    return o;
}

void api_fail(struct api_answer *a, enum api_problem p, const char *fmt, ...)
{
    char detail[700];
    va_list args;
    va_start(args, fmt);
    vsnprintf(detail, sizeof detail, fmt, args);
    va_end(args);
    json_t *o = api_problem_object(p, detail);
    a->status = problems[p].status;
    a->problem = p;
    a->retry_after_s = problems[p].retry_after_s;
    a->made = 0;
    a->tag[0] = '\0';
    api_dump(o, a);
    json_decref(o);
}

void api_fail_err(struct api_answer *a, const struct err *e)
{
    enum api_problem p = API_INTERNAL;
    switch (e->kind) {
    case ERR_AWAY:
    case ERR_LIMIT:
    case ERR_PERMISSION:
    case ERR_CONFIG:
        p = API_DATABASE_AWAY;
        break;
    case ERR_BUSY:
        p = API_OVERLOADED;
        break;
    case ERR_REJECT:
        p = API_INVALID_MESSAGE;
        break;
    case ERR_NOT_FOUND:
        p = API_NOT_FOUND;
        break;
    case ERR_STOPPING:
        p = API_NOT_READY;
        break;
    default:
        break;
    }
    /* The database's own text is only logged. */
    if (p == API_DATABASE_AWAY)
        api_fail(a, p, "try again in a moment; nothing was changed by this request");
    else
        api_fail(a, p, "%s", e->text);
}

bool api_is_unclear(const struct api_request *r, const struct err *e)
{
    return e->kind == ERR_AWAY && r->op->effect != API_READS;
}

void api_fail_unclear(struct api_request *r, const char *whose)
{
    bool twice = r->idempotency_key.len == 0 && (r->op->effect == API_KEYED || r->op->needs_key);
    api_fail(&r->answer, API_UNKNOWN_OUTCOME, "%s became unavailable, so the outcome is unknown: %s", whose,
             twice                        ? "repeating the request may do it twice, so check first"
             : r->idempotency_key.len > 0 ? "repeating the request with the same Idempotency-Key is safe"
                                          : "repeating the request is safe");
}

json_t *api_parse_body(struct bytes body, struct api_answer *a)
{
    struct err e = {0};
    enum json_fault fault;
    char shown[JSON_SHOW_SIZE];
    json_t *value = json_document_load(body, &fault, &e);
    if (json_is_object(value))
        return value;
    if (value != NULL)
        api_fail(a, API_INVALID_MESSAGE, "the body is %s: write a JSON object, {\"name\": value, ...}",
                 json_is_array(value) ? "an array" : json_show(value, shown));
    else if (fault == JSON_FAULT_MEMORY)
        api_fail(a, API_OVERLOADED, "not enough memory for this request now");
    else
        api_fail(a, fault == JSON_FAULT_SYNTAX ? API_INVALID_JSON : API_INVALID_MESSAGE, "%s", e.text);
    json_decref(value);
    return NULL;
}
