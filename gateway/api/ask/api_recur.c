/* Recurring schedules. What they are and do is SQL (sql/schema/001_73_recur.sql); here is what a request may
 * have, and what a token may name. */
#include "core/message/reserved.h"
#include "gateway/api/api_operation.h"
#include "gateway/api/ask/api_ask.h"
#include "gateway/json/json_document.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TIMES_MAX 1000

/* With a token the default exchange leads to no queue of ours, and CC names no other (api_scope.c). False:
 * answered. */
static bool token_admits(struct api_context *c, struct api_request *r)
{
    struct err e = {0};
    const json_t *exchange = json_object_get(c->body, "exchange"),
                 *key = json_object_get(c->body, "routing_key"),
                 *headers = json_object_get(c->body, "headers");
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

/* PostgreSQL reads the definition as JSON. False: answered. */
static bool has_no_nul(struct api_request *r)
{
    struct bytes rest = json_raw_object(r->body), name, value;
    char shown[80];
    while (rest.len > 0 && json_raw_next(&rest, &name, &value)) {
        if (!json_raw_holds_nul(value))
            continue;
        bytes_printable(bytes_of(name.data + 1, name.len - 2), shown, sizeof shown);
        api_fail(&r->answer, API_INVALID_MESSAGE,
                 "%s: holds a NUL character, which is not allowed (a body with one: body_base64)", shown);
        return false;
    }
    return true;
}

int api_recur_set(struct api_context *c, struct api_request *r, struct err *e)
{
    return has_no_nul(r) && token_admits(c, r) ? api_ask_change(c, r, r->body, e) : 0;
}

/* --- once more */

static int run_once(struct api_context *c, struct api_request *r, struct api_once *once, struct err *e)
{
    const struct bytes *argument = once->work;
    int rc = api_ask_change(c, r, *argument, e);
    once->touched = rc != 0 && e->kind == ERR_AWAY;
    return rc;
}

/* As text in c->arena; data NULL: out of memory. */
static struct bytes print_argument(struct api_context *c, json_t *argument)
{
    char *text = json_dumps(argument, JSON_COMPACT);
    struct bytes out = arena_copy(&c->arena, bytes_of_str(text));
    free(text);
    json_decref(argument);
    return out;
}

/* Who repeats a request whose first answer was lost gets the id of what that one made. */
int api_recur_run(struct api_context *c, struct api_request *r, struct err *e)
{
    struct bytes key = r->idempotency_key, argument;
    struct api_once once = {.run = run_once, .work = &argument};
    if (key.len == 0)
        return api_ask_change(c, r, (struct bytes){0}, e);
    argument = print_argument(
        c, json_pack("{s:o}", "request",
                     json_sprintf("%s: %.*s", api_principal(r), (int)key.len, (const char *)key.data)));
    if (argument.data != NULL)
        return api_once_run(c, r, &once, e);
    api_fail(&r->answer, API_OVERLOADED, "there is no memory for this request now");
    return 0;
}

/* --- pages of them, and the next times of one */

int api_recur_list(struct api_context *c, struct api_request *r, struct err *e)
{
    struct ask_request q = {0};
    struct ask_answer answer;
    struct api_position after;
    int64_t size;
    char argument[400];
    struct buf *out = &r->answer.body;
    if (api_page_size(r, &size, e) != 0 || api_page_read(c, r, &after, e) < 0)
        return -1;
    /* A name needs no escapes. */
    snprintf(argument, sizeof argument, "{\"limit\":%" PRId64 ",\"after\":\"%.*s\"}", size,
             (int)after.name.len, after.name.len > 0 ? (const char *)after.name.data : "");
    q.argument = bytes_of_str(argument);
    if (api_ask_with(c, r, &q, &answer, e) != 0)
        return -1;
    const struct api_position last = {.name = bytes_of_str(answer.tag)};
    buf_reset(out);
    buf_put_str(out, "{\"recurring\":");
    buf_put_bytes(out, answer.text);
    buf_put_str(out, ",\"next_page_token\":");
    buf_put_str(out, last.name.len > 0 ? "\"" : "null");
    if (last.name.len > 0) {
        api_page_print(c, r, &last, out);
        buf_put_str(out, "\"");
    }
    buf_put_str(out, "}\n");
    r->answer.status = 200;
    if (out->failed)
        api_fail(&r->answer, API_INTERNAL, "the page is too large: ask for fewer with page_size");
    return 0;
}

/* Of a schedule by its name, or of an expression. */
int api_recur_preview(struct api_context *c, struct api_request *r, struct err *e)
{
    static const char *const fields[] = {"cron", "dialect", "zone", "from", "dst"};
    struct ask_request q = {.name = api_param(&r->params, "name")};
    struct ask_answer answer;
    int64_t n = 10;
    if (api_param_number(&r->params, "n", TIMES_MAX, &n, e) != 0)
        return -1;
    json_t *argument = json_pack("{s:I}", "n", (json_int_t)n);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        struct bytes v = api_param(&r->params, fields[i]);
        if (v.data != NULL)
            json_object_set_new(argument, fields[i], json_stringn((const char *)v.data, v.len));
    }
    bool by_name = q.name.data != NULL, given = json_object_size(argument) > 1,
         has_cron = json_object_get(argument, "cron") != NULL;
    q.argument = print_argument(c, argument);
    if (by_name ? given : !has_cron)
        return err_set(e, ERR_REJECT,
                       "give the name of a schedule, or cron with dialect, zone, from and dst as you like");
    if (api_ask_with(c, r, &q, &answer, e) != 0)
        return -1;
    api_ask_print(r, &answer);
    return 0;
}
