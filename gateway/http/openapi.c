/* The description of the interface, /openapi.json (OpenAPI 3.1). The file openapi.json has the description of
 * each call and its fields, in short forms. Parts that many calls share, and those of the table of operations
 * (parameters, rights, errors), are added here.
 *
 * A schema in short is one of
 *   "integer", "uuid", "time", "Message"     a type; with a capital, one of our schemas
 *   "[]Message", "time?"                     an array of it; or null
 *   {"id!": …, "key": …, "...": false}       an object; ! is required; "...": whether other fields are
 * allowed
 *   ["integer", "What it is.", {"minimum": 0}]   any of these, with a description, and more of JSON Schema,
 *                                            in which "items", "anyOf" and "oneOf" are in short, too;
 *                                            "known": the values of an answer. Only requests have "enum":
 *                                            a later version may answer more */
#include "gateway/http/http_internal.h"
#include "openapi_embedded.h"

#include "gateway/json/json_memory.h"
#include "gateway/json/json_message.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JSON_TYPE "application/json"

static json_t *schema_of(const json_t *in_short);

static json_t *ref_to(const char *kind, struct bytes name)
{
    return json_pack("{s:o}", "$ref",
                     json_sprintf("#/components/%s/%.*s", kind, (int)name.len, (const char *)name.data));
}

static json_t *type_of(struct bytes name)
{
    bool nullable = name.len > 0 && name.data[name.len - 1] == '?',
         ours = name.len > 0 && isupper(name.data[0]), uuid = bytes_start_with_str(name, "uuid"),
         time = bytes_start_with_str(name, "time");
    name.len -= nullable;
    if (name.len == 0)
        return json_object();
    if (ours)
        return nullable ? json_pack("{s:[o, {s:s}]}", "anyOf", ref_to("schemas", name), "type", "null")
                        : ref_to("schemas", name);
    if (bytes_start_with_str(name, "[]"))
        return json_pack("{s:s, s:o}", "type", "array", "items",
                         type_of(bytes_of(name.data + 2, name.len - 2)));
    json_t *type = uuid || time ? json_string("string") : json_stringn((const char *)name.data, name.len);
    json_t *out = json_pack(nullable ? "{s:[o, s]}" : "{s:o}", "type", type, "null");
    if (uuid || time)
        json_object_set_new(out, "format", json_string(uuid ? "uuid" : "date-time"));
    return out;
}

static json_t *object_of(const json_t *fields)
{
    json_t *out = json_pack("{s:s}", "type", "object"), *required = json_array(), *properties = json_object(),
           *v;
    const char *name;
    json_object_foreach((json_t *)(uintptr_t)fields, name, v)
    {
        size_t len = strlen(name);
        bool is_required = len > 0 && name[len - 1] == '!';
        if (is_required)
            json_array_append_new(required, json_stringn(name, len - 1));
        if (strcmp(name, "...") == 0)
            json_object_set(out, "additionalProperties", v);
        else
            json_object_setn_new(properties, name, len - is_required, schema_of(v));
    }
    if (json_array_size(required) > 0)
        json_object_set(out, "required", required);
    json_decref(required);
    json_object_set_new(out, "properties", properties);
    return out;
}

/* Of alternatives, those that are no objects are in short. */
static json_t *any_of(const json_t *list)
{
    size_t i;
    json_t *out = json_array(), *one;
    json_array_foreach(list, i, one)
    {
        json_array_append_new(out, json_is_object(one) ? json_incref(one) : schema_of(one));
    }
    return out;
}

/* For generators of clients, it is any string. They have no common form for one with known values: of anyOf,
 * some make a class. */
static void add_known(json_t *schema, json_t *values)
{
    struct buf text;
    size_t i;
    json_t *v, *said = json_object_get(schema, "description");
    buf_init(&text, 8192);
    buf_printf(&text, "%s%sKnown values: ", said ? json_string_value(said) : "", said ? " " : "");
    json_array_foreach(values, i, v)
    {
        buf_printf(&text, "%s%s", i > 0 ? ", " : "", json_string_value(v));
    }
    buf_put_str(&text, "; later versions may add others.");
    if (text.failed)
        json_memory_refuse();
    json_object_set_new(schema, "description", json_stringn((const char *)text.data, text.len));
    json_object_set(schema, "x-extensible-enum", values);
    buf_free(&text);
}

static json_t *schema_of(const json_t *in_short)
{
    const char *name;
    json_t *v;
    if (json_is_string(in_short))
        return type_of(json_text(in_short));
    if (!json_is_array(in_short))
        return object_of(in_short);
    json_t *out = schema_of(json_array_get(in_short, 0));
    if (json_string_length(json_array_get(in_short, 1)) > 0)
        json_object_set(out, "description", json_array_get(in_short, 1));
    json_object_foreach(json_array_get(in_short, 2), name, v)
    {
        bool any = strcmp(name, "anyOf") == 0 || strcmp(name, "oneOf") == 0;
        if (strcmp(name, "known") == 0)
            add_known(out, v);
        else
            json_object_set_new(out, name,
                                any                          ? any_of(v)
                                : strcmp(name, "items") == 0 ? schema_of(v)
                                                             : json_incref(v));
    }
    return out;
}

/* --- calls */

static json_t *content_of(const char *type, json_t *schema)
{
    return json_pack("{s:{s:o}}", type, "schema", schema);
}

static json_t *member(const json_t *object, const char *name, const char *inner)
{
    return json_object_get(json_object_get(object, name), inner);
}

/* As the call itself has it, or as all have. */
static void add_parameter(json_t *list, const json_t *root, const json_t *call, struct bytes name,
                          const char *in)
{
    char text[40];
    snprintf(text, sizeof text, strcmp(in, "path") == 0 ? "{%.*s}" : "%.*s", (int)name.len,
             (const char *)name.data);
    const json_t *own = member(call, "parameters", text);
    json_t *schema = schema_of(own != NULL ? own : member(root, "parameters", text)),
           *said = json_incref(json_object_get(schema, "description"));
    bool required = strcmp(in, "path") == 0 || json_is_true(json_object_get(schema, "required"));
    json_object_del(schema, "description");
    json_object_del(schema, "required");
    json_array_append_new(list, json_pack("{s:s%, s:s, s:b, s:o, s:o}", "name", name.data, name.len, "in", in,
                                          "required", (int)required, "description", said, "schema", schema));
}

static json_t *parameters_of(const json_t *root, const json_t *call, const struct api_operation *op)
{
    json_t *list = json_array();
    const struct bytes id = api_operation_id(op);
    size_t len;
    if (id.len > 0)
        add_parameter(list, root, call, id, "path");
    for (const char *at = op->params + strspn(op->params, " "); *at != '\0';
         at += len + strspn(at + len, " ")) {
        len = strcspn(at, " ");
        add_parameter(list, root, call, bytes_of(at, len), "query");
    }
    if (api_operation_is_keyed(op))
        add_parameter(list, root, call, bytes_of_str("Idempotency-Key"), "header");
    if (op->conditional)
        add_parameter(list, root, call, bytes_of_str("If-Match"), "header");
    if (op->conditional && strcmp(op->method, "PUT") == 0)
        add_parameter(list, root, call, bytes_of_str("If-None-Match"), "header");
    return list;
}

static bool may_answer(const struct api_operation *op, int status)
{
    bool changes = op->effect != API_READS;
    switch (status) {
    case 400:
        return true;
    case 401:
    case 503:
        return !http_route_is_own(op);
    case 403:
        return changes || op->for_all != NULL;
    case 404:
        return api_operation_id(op).len > 0 && strcmp(op->method, "PUT") != 0;
    case 409:
        return api_operation_is_keyed(op) || (changes && op->in_cells);
    case 412:
        return op->conditional;
    default: /* 413, 415, 422 */
        return api_operation_has_body(op);
    }
}

/* ["Schema", "what it says", "a header"] */
static json_t *answer_of(const json_t *root, const json_t *in_short, const char *type)
{
    const char *header = json_string_value(json_array_get(in_short, 2));
    json_t *out = json_pack("{s:O, s:o}", "description", json_array_get(in_short, 1), "content",
                            content_of(type, schema_of(json_array_get(in_short, 0))));
    if (header != NULL)
        json_object_set_new(out, "headers", json_pack("{s:O}", header, member(root, "headers", header)));
    return out;
}

static json_t *answers_of(const json_t *root, const json_t *call, const struct api_operation *op)
{
    static const char *const good[] = {"200", "201"};
    const char *status, *type = json_string_value(json_object_get(call, "type"));
    json_t *out = json_object(), *problem;
    for (size_t i = 0; i < 2; i++)
        if (json_object_get(call, good[i]) != NULL)
            json_object_set_new(out, good[i],
                                answer_of(root, json_object_get(call, good[i]), type ? type : JSON_TYPE));
    json_object_foreach(json_object_get(root, "problems"), status, problem)
    {
        if (may_answer(op, (int)strtol(status, NULL, 10)) || json_object_get(call, status) != NULL)
            json_object_set_new(out, status, ref_to("responses", json_text(json_array_get(problem, 0))));
    }
    return out;
}

static json_t *call_of(const json_t *root, const json_t *call, const struct api_operation *op)
{
    static const char *const copied[] = {"operationId", "summary", "description"};
    json_t *out = json_object(), *parameters = parameters_of(root, call, op);
    for (size_t i = 0; i < sizeof copied / sizeof copied[0]; i++)
        if (json_object_get(call, copied[i]) != NULL)
            json_object_set(out, copied[i], json_object_get(call, copied[i]));
    if (http_route_is_own(op))
        json_object_set_new(out, "security", json_array());
    if (json_array_size(parameters) > 0)
        json_object_set(out, "parameters", parameters);
    json_decref(parameters);
    if (api_operation_has_body(op))
        json_object_set_new(out, "requestBody",
                            json_pack("{s:b, s:o}", "required", 1, "content",
                                      content_of(JSON_TYPE, schema_of(json_object_get(call, "body")))));
    json_object_set_new(out, "responses", answers_of(root, call, op));
    return out;
}

static json_t *paths_of(const json_t *root)
{
    json_t *out = json_object();
    char name[100];
    for (int n = 0; http_route_call(n)->name != NULL; n++) {
        const struct api_operation *op = http_route_call(n);
        snprintf(name, sizeof name, "%s %s", op->method, op->path != NULL ? op->path : "");
        const json_t *call = member(root, "calls", name);
        if (call == NULL)
            continue; /* the console, or what HTTP does not have */
        for (char *c = name; *c != ' '; c++)
            *c = (char)tolower((unsigned char)*c);
        if (json_object_get(out, op->path) == NULL)
            json_object_set_new(out, op->path, json_object());
        json_object_setn_new(json_object_get(out, op->path), name, strlen(op->method),
                             call_of(root, call, op));
    }
    return out;
}

/* --- what calls refer to */

static json_t *problems_of(const json_t *root)
{
    json_t *out = json_object(), *problem;
    const char *status;
    json_object_foreach(json_object_get(root, "problems"), status, problem)
    {
        json_t *whole =
            json_pack("[s, O, O*]", "Problem", json_array_get(problem, 1), json_array_get(problem, 2));
        json_object_set_new(out, json_string_value(json_array_get(problem, 0)),
                            answer_of(root, whole, "application/problem+json"));
        json_decref(whole);
    }
    return out;
}

static json_t *schemas_of(const json_t *root)
{
    json_t *out = json_object(), *schema, *types = json_array();
    const char *name;
    json_object_foreach(json_object_get(root, "schemas"), name, schema)
    {
        json_object_set_new(out, name, schema_of(schema));
    }
    for (enum api_problem p = API_OK + 1; p < API_PROBLEM_COUNT; p++)
        json_array_append_new(types, json_string(api_problem_type(p)));
    add_known(member(json_object_get(out, "Problem"), "properties", "type"), types);
    json_decref(types);
    return out;
}

int http_openapi_print(struct buf *out, struct err *e)
{
    struct json_memory_scope outer = json_memory_begin();
    json_t *root = json_loads(openapi_json, 0, NULL);
    json_t *components =
        json_pack("{s:O, s:o, s:o}", "securitySchemes", json_object_get(root, "securitySchemes"), "responses",
                  problems_of(root), "schemas", schemas_of(root));
    json_t *document =
        json_pack("{s:O, s:O, s:O, s:O, s:o, s:o}", "openapi", json_object_get(root, "openapi"), "info",
                  json_object_get(root, "info"), "servers", json_object_get(root, "servers"), "security",
                  json_object_get(root, "security"), "paths", paths_of(root), "components", components);
    int rc = json_put(document, JSON_INDENT(1), out);
    buf_put_str(out, "\n");
    json_decref(document);
    json_decref(root);
    if (json_memory_end(outer) || rc != 0 || out->failed)
        return err_set(e, ERR_BUG, "out of memory for the description of the interface");
    return 0;
}
