#include "gateway/ops/api_json_request.h"

#include "gateway/json/json_document.h"
#include "gateway/ops/api_internal.h"
#include "gateway/ops/api_operation.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void api_json_request_open(struct api_json_request *o, size_t body_max)
{
    *o = (struct api_json_request){0};
    buf_init(&o->body, body_max);
}

void api_json_request_close(struct api_json_request *o)
{
    json_decref(o->root);
    json_decref(o->token_text);
    json_decref(o->conditions[0]);
    json_decref(o->conditions[1]);
    buf_free(&o->body);
    o->root = o->token_text = o->conditions[0] = o->conditions[1] = NULL;
}

struct bytes api_json_request_token(const struct api_json_request *o)
{
    return o->token_text != NULL ? json_text(o->token_text) : (struct bytes){0};
}

/* The fields of the operation, besides those of its request. */
static const char *const conditions[] = {"if_match", "if_none_match"};

static int take_conditions(struct api_json_request *o, struct api_request *r)
{
    struct bytes *const to[] = {&r->if_match, &r->if_none_match};
    for (size_t i = 0; r->op->conditional && i < 2; i++) {
        json_t *v = json_object_get(o->root, conditions[i]);
        if (v == NULL)
            continue;
        if (!json_is_string(v)) {
            api_fail(&r->answer, API_INVALID_MESSAGE, "%s: is not a string", conditions[i]);
            return -1;
        }
        o->conditions[i] = json_incref(v);
        *to[i] = json_text(v);
        json_object_del(o->root, conditions[i]);
    }
    return 0;
}

static const struct api_operation *find_operation(const json_t *root, struct api_answer *a)
{
    const json_t *op = json_object_get(root, "op");
    char shown[JSON_SHOW_SIZE], names[700];
    const struct api_operation *found = api_operation_find(root);
    if (found == NULL)
        api_fail(a, API_INVALID_MESSAGE, "op: %s%s: allowed are %s",
                 op != NULL ? json_show(op, shown) : "it is missing", op != NULL ? " is none" : "",
                 api_operation_names(names, sizeof names));
    return found;
}

static int take_token(struct api_json_request *o, struct api_answer *a)
{
    json_t *token = json_object_get(o->root, "token");
    if (token == NULL)
        return 0;
    if (!json_is_string(token)) {
        /* Its value is not shown: it may be a secret in a wrong form. */
        api_fail(a, API_INVALID_MESSAGE, "token: is not a string");
        return -1;
    }
    o->token_text = json_incref(token);
    json_object_del(o->root, "token");
    return 0;
}

static int take_id(struct api_json_request *o, struct api_request *r)
{
    struct bytes name = api_operation_id(r->op);
    const json_t *id = json_object_getn(o->root, (const char *)name.data, name.len);
    bool may_be_empty = bytes_equal_str(name, "exchange"); /* the default one */
    if (name.len == 0 || (json_is_string(id) && (json_string_length(id) > 0 || may_be_empty))) {
        r->id = json_text(id);
        return 0;
    }
    api_fail(&r->answer, API_INVALID_MESSAGE,
             bytes_equal_str(name, "id") ? "%.*s: name a message by its id, a string"
                                         : "%.*s: it is missing, or no string",
             (int)name.len, (const char *)name.data);
    return -1;
}

/* Every field but the id becomes a parameter. */
static int take_params(struct api_json_request *o, struct api_request *r)
{
    const char *name;
    json_t *v;
    json_object_foreach(o->root, name, v)
    {
        size_t n = r->params.count;
        if (bytes_equal_str(api_operation_id(r->op), name) || json_is_null(v))
            continue;
        if (n == API_PARAMS_MAX || (!json_is_string(v) && !json_is_integer(v))) {
            char shown[80];
            api_fail(&r->answer, API_INVALID_MESSAGE, "%s: %s",
                     bytes_printable(bytes_of_str(name), shown, sizeof shown),
                     n == API_PARAMS_MAX ? "there are too many fields" : "is not a string");
            return -1;
        }
        if (json_is_integer(v))
            snprintf(o->numbers[n], sizeof o->numbers[n], "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        r->params.list[r->params.count++] = (struct api_param){
            bytes_of_str(name), json_is_integer(v) ? bytes_of_str(o->numbers[n]) : json_text(v)};
    }
    return 0;
}

/* Is it one of the order's own, and not of the body? name: with quotes. */
static bool is_own(const struct api_request *r, struct bytes name)
{
    char id[16];
    snprintf(id, sizeof id, "%.*s", (int)api_operation_id(r->op).len,
             (const char *)api_operation_id(r->op).data);
    return json_raw_is(name, "op") || json_raw_is(name, "token") || (*id != '\0' && json_raw_is(name, id)) ||
           (r->op->conditional && (json_raw_is(name, conditions[0]) || json_raw_is(name, conditions[1])));
}

/* The members as they were written, without those that are the order's own. */
static int take_body(struct api_json_request *o, struct api_request *r)
{
    struct bytes rest = json_raw_object(o->text), name, value;
    const char *between = "{";
    while (json_raw_next(&rest, &name, &value)) {
        if (is_own(r, name))
            continue;
        buf_put_str(&o->body, between);
        buf_put_bytes(&o->body, name);
        buf_put_str(&o->body, ":");
        buf_put_bytes(&o->body, value);
        between = ",";
    }
    buf_put_str(&o->body, *between == '{' ? "{}" : "}");
    if (o->body.failed) {
        api_fail(&r->answer, API_TOO_LARGE, "the request is larger than %zu bytes", o->body.limit);
        return -1;
    }
    r->body = buf_bytes(&o->body);
    return 0;
}

int api_json_request_read(struct api_json_request *o, struct bytes text, struct api_request *r)
{
    o->text = text;
    o->root = api_parse_body(text, &r->answer);
    if (o->root == NULL || take_token(o, &r->answer) != 0)
        return -1;
    r->op = find_operation(o->root, &r->answer);
    if (r->op == NULL)
        return -1;
    json_object_del(o->root, "op");
    if (take_conditions(o, r) != 0 || take_id(o, r) != 0)
        return -1;
    return api_operation_has_body(r->op) ? take_body(o, r) : take_params(o, r);
}

void api_json_request_print(const struct api_answer *a, struct buf *out)
{
    struct bytes body = buf_bytes(&a->body);
    while (body.len > 0 && body.data[body.len - 1] == '\n')
        body.len--;
    /* A problem says its status itself. */
    if (a->status >= 400 || body.len < 2) {
        buf_put_bytes(out, body);
        return;
    }
    buf_printf(out, body.len == 2 ? "{\"status\":%d" : "{\"status\":%d,", a->status);
    buf_put(out, body.data + 1, body.len - 1);
}
