/* Recurring schedules. What they are and do is SQL (sql/operate/recur.h); here is what a request may have,
 * and what a token may name. */
#include "core/base/hash.h"
#include "core/message/reserved.h"
#include "gateway/api/api_internal.h"
#include "gateway/api/recur/recur_request.h"

#include <string.h>

/* With a token the default exchange leads to no queue of ours, and CC names no other (api_scope.c). False:
 * answered. */
static bool token_admits(struct api_context *c, struct api_request *r, const json_t *definition)
{
    struct err e = {0};
    const json_t *exchange = json_object_get(definition, "exchange"),
                 *key = json_object_get(definition, "routing_key"),
                 *headers = json_object_get(definition, "headers");
    const struct message m = {.exchange = json_is_string(exchange) ? json_text(exchange)
                                                                   : bytes_of_str(c->rules.delivery_exchange),
                              .routing_key = json_is_string(key) ? json_text(key) : (struct bytes){0}};
    if (reserved_check(&m, &c->rules, &e) != 0)
        api_fail(&r->answer, API_INVALID_MESSAGE, "%s", e.text);
    else if (r->scope != NULL && m.exchange.len == 0 &&
             (json_object_get(headers, "CC") != NULL || json_object_get(headers, "BCC") != NULL))
        api_fail(&r->answer, API_EXCHANGE_NOT_ALLOWED,
                 "headers: with a token, CC and BCC are not for the default exchange");
    else
        return true;
    return false;
}

int api_recur_set(struct api_context *c, struct api_request *r, struct err *e)
{
    struct recur_request q = {.operation = RECUR_SET, .argument = r->body};
    if (!api_takes_nothing(r))
        return 0;
    json_t *definition = api_parse_body(r->body, &r->answer);
    bool fine = definition != NULL && token_admits(c, r, definition);
    json_decref(definition);
    return fine ? recur_request_change(c, r, &q, e) : 0;
}

int api_recur_show(struct api_context *c, struct api_request *r, struct err *e)
{
    struct recur_request q = {.operation = RECUR_SHOW};
    return api_takes_nothing(r) ? recur_request_read(c, r, &q, "", e) : 0;
}

int api_recur_history(struct api_context *c, struct api_request *r, struct err *e)
{
    struct recur_request q = {.operation = RECUR_HISTORY};
    return api_takes_nothing(r) ? recur_request_read(c, r, &q, "changes", e) : 0;
}

int api_recur_pause(struct api_context *c, struct api_request *r, struct err *e)
{
    struct recur_request q = {.operation = RECUR_PAUSE};
    return api_takes_nothing(r) && api_body_is_empty(r) ? recur_request_change(c, r, &q, e) : 0;
}

int api_recur_resume(struct api_context *c, struct api_request *r, struct err *e)
{
    struct recur_request q = {.operation = RECUR_RESUME};
    return api_takes_nothing(r) && api_body_is_empty(r) ? recur_request_change(c, r, &q, e) : 0;
}

int api_recur_remove(struct api_context *c, struct api_request *r, struct err *e)
{
    struct recur_request q = {.operation = RECUR_REMOVE};
    return api_takes_nothing(r) ? recur_request_change(c, r, &q, e) : 0;
}

/* --- once more */

static int run_once(struct api_context *c, struct api_request *r, struct api_once *once, struct err *e)
{
    int rc = recur_request_change(c, r, once->work, e);
    once->touched = rc != 0 && e->kind == ERR_AWAY;
    return rc;
}

/* Who repeats a request whose first answer was lost gets the id of what that one made. */
int api_recur_run(struct api_context *c, struct api_request *r, struct err *e)
{
    static const uint8_t name_key[SIPHASH_KEY_SIZE] = {"postdate recur"};
    struct recur_request q = {.operation = RECUR_RUN};
    struct api_once once = {.run = run_once, .work = &q, .number = siphash(name_key, r->id) ^ API_RECUR_RUN};
    if (!api_takes_nothing(r) || !api_body_is_empty(r))
        return 0;
    if (r->idempotency_key.len == 0)
        return recur_request_change(c, r, &q, e);
    json_t *argument = json_object();
    char *text = NULL;
    struct buf request;
    buf_init(&request, 1024);
    buf_printf(&request, "%s: ", api_principal(r));
    buf_put_bytes(&request, r->idempotency_key);
    if (json_object_set_new(argument, "request", json_stringn((const char *)request.data, request.len)) == 0)
        text = json_dumps(argument, JSON_COMPACT);
    int rc = 0;
    if (text == NULL) {
        api_fail(&r->answer, API_OVERLOADED, "there is no memory for this request now");
    } else {
        q.argument = bytes_of_str(text);
        rc = api_once_run(c, r, &once, e);
    }
    free(text);
    buf_free(&request);
    json_decref(argument);
    return rc;
}
