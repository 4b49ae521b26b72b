#include "gateway/api/ask/api_ask.h"

#include "core/base/rate.h"
#include "core/message/message.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_EXCHANGE "amq.default" /* what RabbitMQ calls it where a name is needed; no other has it */

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

/* What a field is for the function: a new reference. */
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
    return other ? json_fail_field(name, v, "what is named already", e) : 0;
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

static struct bytes trim(struct bytes b)
{
    while (b.len > 0 && (b.data[0] == ' ' || b.data[0] == '\t'))
        b = bytes_of(b.data + 1, b.len - 1);
    while (b.len > 0 && (b.data[b.len - 1] == ' ' || b.data[b.len - 1] == '\t'))
        b.len--;
    return b;
}

/* The tags of an If-Match, between commas: '"1-a", "2-b"', also without quotes; '*' alone. Weak ones match
 * nothing, so they are left out. NULL: out of memory. */
static const char *read_versions(struct api_context *c, struct bytes rest, size_t *len)
{
    char *list = arena_alloc(&c->arena, rest.len + 1);
    *len = 0;
    while (list != NULL && rest.len > 0) {
        const uint8_t *comma = memchr(rest.data, ',', rest.len);
        size_t n = comma != NULL ? (size_t)(comma - rest.data) : rest.len;
        struct bytes one = trim(bytes_of(rest.data, n));
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

int api_ask_with(struct api_context *c, const struct api_request *r, struct ask_request *q,
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
        return err_set(e, ERR_NOT_FOUND, "there is nothing with the name \"%s\"",
                       bytes_printable(q->name, shown, sizeof shown));
    return ask_noun(c->pg, q, &c->arena, out, e);
}

void api_ask_print(struct api_request *r, const struct ask_answer *answer)
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

int api_ask_change(struct api_context *c, struct api_request *r, struct bytes argument, struct err *e)
{
    struct ask_request q = {.argument = argument};
    struct ask_answer answer;
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

int api_ask(struct api_context *c, struct api_request *r, struct err *e)
{
    json_t *argument = json_object();
    struct bytes text = {0};
    int rc = r->op->fields != NULL ? add_fields(r, c->body, argument, e) : 0;
    char *printed = rc == 0 && r->op->fields != NULL ? json_dumps(argument, JSON_COMPACT) : NULL;
    if (printed != NULL)
        text = arena_copy(&c->arena, bytes_of_str(printed));
    free(printed);
    json_decref(argument);
    if (rc == 0 && r->op->fields != NULL && text.data == NULL)
        json_memory_refuse();
    else if (rc == 0)
        rc = api_ask_change(c, r, text, e);
    return rc;
}
