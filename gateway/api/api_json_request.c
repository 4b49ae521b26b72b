#include "gateway/api/api_json_request.h"

#include "gateway/api/api_internal.h"
#include "gateway/api/api_operation.h"
#include "gateway/json/json_document.h"

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

/* What the operation itself has, beside the fields of its request. */
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
    const struct api_operation *found =
        json_is_string(op) ? api_operation_find(json_text(op), json_object_get(root, "filter") != NULL)
                           : NULL;
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
        /* Its value is not shown: it may be somebody's secret in a wrong shape. */
        api_fail(a, API_INVALID_MESSAGE, "token: is not a string");
        return -1;
    }
    o->token_text = json_incref(token);
    json_object_del(o->root, "token");
    return 0;
}

static const char *id_name(const struct api_request *r)
{
    return r->op->id != NULL ? r->op->id : "id";
}

static int take_id(struct api_json_request *o, struct api_request *r, bool needed)
{
    const char *name = id_name(r);
    const json_t *id = json_object_get(o->root, name);
    if (id == NULL && !needed)
        return 0;
    bool may_be_empty = strcmp(name, "exchange") == 0; /* the default one */
    if (!json_is_string(id) || (json_string_length(id) == 0 && !may_be_empty)) {
        api_fail(&r->answer, API_INVALID_MESSAGE,
                 r->op->id != NULL ? "%s: it is missing, or no string"
                                   : "%s: name a message by its id, a string",
                 name);
        return -1;
    }
    r->id = json_text(id);
    return 0;
}

/* Every field but the id becomes a parameter. */
static int take_params(struct api_json_request *o, struct api_request *r)
{
    const char *name;
    json_t *v;
    json_object_foreach(o->root, name, v)
    {
        size_t n = r->param_count;
        if (strcmp(name, id_name(r)) == 0 || json_is_null(v))
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
        r->params[r->param_count++] = (struct api_param){
            bytes_of_str(name), json_is_integer(v) ? bytes_of_str(o->numbers[n]) : json_text(v)};
    }
    return 0;
}

/* The members as they were written, without those that are the order's own. */
static int take_body(struct api_json_request *o, struct api_request *r, bool without_id)
{
    struct bytes rest = json_raw_object(o->text), name, value;
    const char *between = "{";
    while (json_raw_next(&rest, &name, &value)) {
        if (json_raw_is(name, "op") || json_raw_is(name, "token") ||
            (without_id && json_raw_is(name, id_name(r))) ||
            (r->op->conditional && (json_raw_is(name, conditions[0]) || json_raw_is(name, conditions[1]))))
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

static int take_fields(struct api_json_request *o, struct api_request *r)
{
    int rc = 0;
    switch (r->op->shape) {
    case API_SHAPE_BODY:
        return take_body(o, r, false);
    case API_SHAPE_PARAMS:
        rc = take_id(o, r, false);
        return rc == 0 ? take_params(o, r) : -1;
    case API_SHAPE_ID:
        rc = take_id(o, r, true);
        return rc == 0 ? take_params(o, r) : -1;
    case API_SHAPE_ID_BODY:
        if (take_id(o, r, true) != 0)
            return -1;
        return take_body(o, r, true);
    }
    return rc;
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
    return take_conditions(o, r) == 0 ? take_fields(o, r) : -1;
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
