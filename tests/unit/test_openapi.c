/* The description and the tables that it is made of. What servers answer is compared with it in the live
 * tests. */
#include "gateway/http/http_internal.h"
#include "tests/unit/unit.h"

#include <jansson.h>
#include <string.h>

static json_t *load_description(void)
{
    struct buf text;
    struct err e = {0};
    buf_init(&text, (size_t)1 << 20);
    assert_int_equal(http_openapi_print(&text, &e), 0);
    json_t *root = json_loadb((const char *)text.data, text.len, JSON_REJECT_DUPLICATES, NULL);
    buf_free(&text);
    assert_non_null(root);
    return root;
}

static void check_call(const json_t *call)
{
    const json_t *parameter;
    size_t i;
    assert_true(json_string_length(json_object_get(call, "operationId")) > 0);
    assert_true(json_string_length(json_object_get(call, "summary")) > 0);
    assert_non_null(json_object_get(json_object_get(call, "responses"), "200"));
    json_array_foreach(json_object_get(call, "parameters"), i, parameter)
    {
        assert_true(json_string_length(json_object_get(parameter, "description")) > 0);
        assert_true(json_object_size(json_object_get(parameter, "schema")) > 0);
    }
}

TEST(test_each_call_is_described)
{
    json_t *root = load_description(), *item;
    size_t described = 0, calls = 0;
    const char *path;
    for (const struct api_operation *op = api_operations; op->name != NULL; op++) {
        char method[8] = "";
        for (size_t i = 0; op->method[i] != '\0'; i++)
            method[i] = (char)(op->method[i] | 0x20);
        if (op->path == NULL)
            continue;
        check_call(json_object_get(json_object_get(json_object_get(root, "paths"), op->path), method));
        calls++;
    }
    json_object_foreach(json_object_get(root, "paths"), path, item)
    {
        described += json_object_size(item);
    }
    assert_int_equal(described, calls + 4); /* and /livez, /readyz, /metrics, /openapi.json */
    json_decref(root);
}

static void check_refs(const json_t *root, json_t *node)
{
    const char *name;
    json_t *part;
    size_t i;
    json_object_foreach(node, name, part)
    {
        if (strcmp(name, "$ref") == 0) {
            char text[100], *rest = text, *step;
            const json_t *at = root;
            snprintf(text, sizeof text, "%s", json_string_value(part) + 2);
            while ((step = strsep(&rest, "/")) != NULL)
                at = json_object_get(at, step);
            assert_true(json_object_size(at) > 0);
        }
        check_refs(root, part);
    }
    json_array_foreach(node, i, part)
    {
        check_refs(root, part);
    }
}

TEST(test_what_is_referred_to_is_there)
{
    json_t *root = load_description();
    check_refs(root, root);
    json_decref(root);
}
