
#include "gateway/ops/api_ask.h"
#include "core/base/rate.h"
#include "core/message/message.h"
#include "core/message/reserved.h"
#include "gateway/json/json_dead.h"
#include "gateway/json/json_document.h"
#include "gateway/ops/api_operation.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_EXCHANGE                                                                                     \
    "amq.default" /* RabbitMQ's name for it in the management API; no other exchange has it */

/* --- the argument */
static int read_rate(const struct api_field *f, json_t *v, json_t **out, struct err *e)
{
    double per_second;
    if (!json_is_string(v))
        return json_fail_field(f->name, v, f->allowed, e);
    if (rate_parse(json_text(v), &per_second, e) != 0)
        return -1;
    *out = json_real(per_second);
    return 0;
}

/* The value of a field for the function: a new reference. */
static int read_field(const struct api_field *f, json_t *v, json_t **out, struct err *e)
{
    struct bytes name;
    json_int_t n = json_integer_value(v);
    if (f->kind == API_FIELD_RATE)
        return read_rate(f, v, out, e);
    if (f->kind == API_FIELD_NAME ? json_name(f->name, v, &name, e) != 0
                                  : !json_is_integer(v) || n < 1 || n > f->most)
        return f->kind == API_FIELD_NAME ? -1 : json_fail_field(f->name, v, f->allowed, e);
    *out = f->kind == API_FIELD_NAME && strcmp(f->name, "exchange") == 0 &&
                   bytes_equal_str(name, DEFAULT_EXCHANGE)
               ? json_string("")
               : json_incref(v);
    return 0;
}

static int fail_unknown(const struct api_operation *op, const char *name, struct err *e)
{
    char shown[80], allowed[300] = "";
    size_t used = 0;
    for (const struct api_field *f = op->fields; f->name != NULL && used < sizeof allowed; f++)
        used +=
            (size_t)snprintf(allowed + used, sizeof allowed - used, "%s%s", used > 0 ? ", " : "", f->name);
    return err_set(e, ERR_REJECT, "%s: unknown field (allowed: %s)",
                   bytes_printable(bytes_of_str(name), shown, sizeof shown), allowed);
}

/* The address may have named it already: then it is the same. */
static int add_field(const struct api_operation *op, json_t *argument, const char *name, json_t *v,
                     struct err *e)
{
    const struct api_field *f = op->fields;
    json_t *value = NULL, *named = json_object_get(argument, name);
    while (f->name != NULL && strcmp(f->name, name) != 0)
        f++;
    if (f->name == NULL)
        return fail_unknown(op, name, e);
    if (read_field(f, v, &value, e) != 0)
        return -1;
    bool other = named != NULL && !json_equal(named, value);
    json_object_set_new(argument, name, value);
    return other ? json_fail_field(name, v, "already in the address", e) : 0;
}

static int add_text(const struct api_operation *op, json_t *argument, struct bytes name, struct bytes text,
                    struct err *e)
{
    char field[40];
    snprintf(field, sizeof field, "%.*s", (int)name.len, (const char *)name.data);
    if (!bytes_is_text(text))
        return err_set(e, ERR_REJECT, "the %s is not UTF-8 text without NUL", field);
    json_t *v = json_stringn((const char *)text.data, text.len);
    int rc = v != NULL ? add_field(op, argument, field, v, e) : 0; /* no memory: the scope's end tells */
    json_decref(v);
    return rc;
}

/* id, parameters and body as one object. */
static int add_fields(const struct api_request *r, const json_t *body, json_t *argument, struct err *e)
{
    const char *name;
    json_t *v;
    if (r->id.data != NULL && add_text(r->op, argument, api_operation_id(r->op), r->id, e) != 0)
        return -1;
    for (size_t i = 0; i < r->params.count; i++)
        if (add_text(r->op, argument, r->params.list[i].name, r->params.list[i].value, e) != 0)
            return -1;
    json_object_foreach((json_t *)(uintptr_t)body, name, v)
    {
        if (add_field(r->op, argument, name, v, e) != 0)
            return -1;
    }
    for (const struct api_field *f = r->op->fields; f->name != NULL; f++)
        if (f->required && json_object_get(argument, f->name) == NULL)
            return err_set(e, ERR_REJECT, "%s: it is missing (allowed: %s)", f->name, f->allowed);
    return 0;
}

int api_ask_check(const struct api_request *r, struct err *e)
{
    json_t *argument = json_object(), *body = json_loadb((const char *)r->body.data, r->body.len, 0, NULL);
    int rc = r->op->fields != NULL ? add_fields(r, body, argument, e) : 0;
    json_decref(body);
    json_decref(argument);
    return rc;
}

/* --- conditions */
/* The tags of an If-Match, between commas: '"1-a", "2-b"', also without quotes; '*' alone. Weak ones match
 * nothing, so they are left out. NULL: out of memory. */
static const char *read_versions(struct api_context *c, struct bytes rest, size_t *len)
{
    char *list = arena_alloc(&c->arena, rest.len + 1);
    *len = 0;
    while (list != NULL && rest.len > 0) {
        const uint8_t *comma = memchr(rest.data, ',', rest.len);
        size_t n = comma != NULL ? (size_t)(comma - rest.data) : rest.len;
        struct bytes one = bytes_trim(bytes_of(rest.data, n));
        rest = bytes_of(rest.data + n, rest.len - n);
        if (rest.len > 0)
            rest = bytes_of(rest.data + 1, rest.len - 1);
        if (bytes_start_with_str(one, "W/"))
            continue;
        if (one.len >= 2 && one.data[0] == '"' && one.data[one.len - 1] == '"')
            one = bytes_of(one.data + 1, one.len - 2);
        if (one.len > 0 && *len > 0)
            list[(*len)++] = ',';
        memcpy(list + *len, one.data, one.len);
        *len += one.len;
    }
    return list;
}

/* False: answered. */
static bool read_conditions(struct api_context *c, struct api_request *r, struct ask_request *q)
{
    char shown[80];
    size_t len;
    q->fresh = r->if_none_match.data != NULL;
    if (q->fresh && !bytes_equal_str(r->if_none_match, "*")) {
        api_fail(&r->answer, API_INVALID_REQUEST, "if-none-match: allowed is *");
        return false;
    }
    if (r->if_match.data == NULL)
        return true;
    q->versions.data = (const uint8_t *)read_versions(c, r->if_match, &len);
    q->versions.len = q->versions.data != NULL ? len : 0;
    if (q->versions.data != NULL && bytes_is_text(q->versions))
        return true;
    api_fail(&r->answer, API_INVALID_REQUEST, "if-match: \"%s\" is no list of tags, such as \"12-64dc0\"",
             bytes_printable(r->if_match, shown, sizeof shown));
    return false;
}

/* Calls the function with this argument (data NULL: none) and the rest of the request; out is in c->arena. */
static int api_ask_with(struct api_context *c, const struct api_request *r, struct ask_request *q,
                        struct ask_answer *out, struct err *e)
{
    char shown[80];
    q->noun = r->op->noun;
    q->operation = strrchr(r->op->name, '_') + 1;
    q->reads = r->op->effect == API_READS;
    q->scope = api_operate_scope(r);
    q->via = r->scope != NULL ? r->scope->principal : "a gateway";
    if (r->id.len > 0)
        q->name = r->id;
    if (!bytes_is_text(q->name))
        return err_set(e, ERR_NOT_FOUND, "\"%s\" does not exist",
                       bytes_printable(q->name, shown, sizeof shown));
    return ask_noun(c->pg, q, &c->arena, out, e);
}

/* Makes the answer from the function's. */
static void api_ask_print(struct api_request *r, const struct ask_answer *answer)
{
    struct buf *out = &r->answer.body;
    const char *field = r->op->answers;
    buf_reset(out);
    if (field != NULL)
        buf_printf(out, "{\"%s\":", field);
    buf_put_bytes(out, answer->text);
    buf_put_str(out, field != NULL ? "}\n" : "\n");
    r->answer.status = answer->outcome == ASK_MADE ? 201 : 200;
    snprintf(r->answer.tag, sizeof r->answer.tag, "%.*s", (int)sizeof r->answer.tag - 1, answer->tag);
    snprintf(r->answer.said, sizeof r->answer.said, "%s", answer->said);
    if (out->failed)
        api_fail(&r->answer, API_INTERNAL, "the answer is too large");
}

/* Asks for a change, if the thing's version is one of those that the request is for, and answers. */
static int api_ask_change(struct api_context *c, struct api_request *r, struct bytes argument, struct err *e)
{
    struct ask_request q = {.argument = argument};
    struct ask_answer answer = {0};
    if (r->op->conditional && !read_conditions(c, r, &q))
        return 0;
    if (api_ask_with(c, r, &q, &answer, e) != 0)
        return -1;
    c->wake = r->op->effect != API_READS;
    if (answer.outcome == ASK_EXISTS || answer.outcome == ASK_UNMET)
        api_fail(&r->answer, API_PRECONDITION_FAILED, "%s", answer.said);
    else if (answer.outcome == ASK_EXCHANGE)
        api_fail(&r->answer, API_EXCHANGE_NOT_ALLOWED, "%s", answer.said);
    else
        api_ask_print(r, &answer);
    return 0;
}

/* As text in c->arena; data NULL: out of memory. */
static struct bytes print_argument(struct api_context *c, json_t *argument)
{
    char *text = json_dumps(argument, JSON_COMPACT);
    struct bytes out = arena_copy(&c->arena, bytes_of_str(text));
    free(text);
    json_decref(argument);
    if (out.data == NULL)
        json_memory_refuse();
    return out;
}

int api_ask(struct api_context *c, struct api_request *r, struct err *e)
{
    json_t *argument = json_object();
    struct bytes text = {0};
    int rc = r->op->fields != NULL ? add_fields(r, c->body, argument, e) : 0;
    if (rc == 0 && r->op->fields != NULL)
        text = print_argument(c, json_incref(argument));
    json_decref(argument);
    return rc == 0 && (r->op->fields == NULL || text.data != NULL) ? api_ask_change(c, r, text, e) : rc;
}

/* --- Retry policies. They belong to queues, independent of exchanges: so they need a token for all exchanges
 * (for_all in the table of operations). Missing fields are as in the default policy. */
int api_policy_set(struct api_context *c, struct api_request *r, struct err *e)
{
    struct retry_policy p;
    if (json_policy_read(c->body, r->id, &p, e) != 0)
        return -1;
    struct bytes argument = print_argument(
        c, json_pack("{s:i, s:I, s:f, s:I, s:i, s:i, s:I}", "attempts", p.attempts, "first",
                     (json_int_t)p.first_ms, "factor", p.factor, "max", (json_int_t)p.max_ms, "jitter",
                     p.jitter, "on", (int)p.on, "keep_dead", (json_int_t)p.keep_dead_ms));
    return argument.data != NULL ? api_ask_change(c, r, argument, e) : 0;
}

/* --- Recurring schedules, which SQL implements (sql/schema/001_73_recur.sql): the fields of requests, and
 * the scope of tokens. */

#define TIMES_MAX 1000

/* With a token the default exchange leads to no queue of ours, and CC names no other (api_param.c). False:
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
                 "headers: with a token, CC and BCC are not permitted for the default exchange");
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

/* Who repeats a request whose first answer was lost gets the id of what that one made. */
int api_recur_run(struct api_context *c, struct api_request *r, struct err *e)
{
    struct bytes key = r->idempotency_key, argument;
    struct idempotency_request once;
    if (key.len == 0)
        return api_ask_change(c, r, (struct bytes){0}, e);
    argument = print_argument(
        c, json_pack("{s:o}", "request",
                     json_sprintf("%s: %.*s", api_principal(r), (int)key.len, (const char *)key.data)));
    int rc = argument.data != NULL ? api_once_begin(c, r, &once, e) : 0;
    if (rc <= 0)
        return rc;
    rc = api_ask_change(c, r, argument, e);
    return api_once_end(c, r, &once, rc, rc != 0 && e->kind == ERR_AWAY);
}

/* --- pages of them, and the next times of one */
int api_recur_list(struct api_context *c, struct api_request *r, struct err *e)
{
    struct ask_request q = {0};
    struct ask_answer answer = {0};
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
    struct ask_answer answer = {0};
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
                       "give the name of a schedule, or cron, with dialect, zone, from and dst if wanted");
    if (api_ask_with(c, r, &q, &answer, e) != 0)
        return -1;
    api_ask_print(r, &answer);
    return 0;
}
