#include "gateway/json/json_document.h"
#include "tests/unit/unit.h"
#include <stdlib.h>
#include <string.h>

static json_t *loaded(const char *text)
{
    enum json_fault fault;
    struct err e = {0};
    json_t *value = json_document_load(bytes_of_str(text), &fault, &e);
    if (value == NULL)
        fail_msg("%s: %s", text, e.text);
    return value;
}

static void refused(struct bytes text, enum json_fault expected, const char *why)
{
    enum json_fault fault;
    struct err e = {0};
    assert_null(json_document_load(text, &fault, &e));
    assert_int_equal(fault, expected);
    if (strstr(e.text, why) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", e.text, why);
}

#define TEN "1234567890"
#define HUNDRED TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN
#define LONG_INTEGER HUNDRED HUNDRED HUNDRED HUNDRED /* beyond any double */

/* "json" of a message by itself, in a batch, and with its name written with escapes. */
TEST(test_json_is_what_was_written)
{
    static const char *const values[] = {"19.99",
                                         "-0",
                                         "-0.0",
                                         "1E5",
                                         "1.10",
                                         "0.1e-7",
                                         "12345678901234567890",
                                         "123456789012345678901234567890.5",
                                         "null",
                                         "true",
                                         "\"a\\u0041\\/\\\"}],\"",
                                         "[1, 2 ,3]",
                                         "{ \"b\" : [ { \"json\" : 1.10 } , \"]\" ] ,\t\"a\":{} }",
                                         "[\n]",
                                         "1e999",
                                         "[-1E+400 , 1.5e-999,\"1e999\"]",
                                         LONG_INTEGER,
                                         "{\"n\":-" LONG_INTEGER ".5e5}",
                                         "{}"};
    static const char *const forms[][2] = {{"{\"json\":", "}"},
                                           {" {\"a\":[{\"json\":1}], \"json\" : ", " , \"z\":\"json\"}"},
                                           {"{\"\\u006as\\u006Fn\":", "}"}};
    for (size_t i = 0; i < COUNT_OF(values); i++) {
        for (size_t k = 0; k < COUNT_OF(forms); k++) {
            char text[600];
            snprintf(text, sizeof text, "%s%s%s", forms[k][0], values[i], forms[k][1]);
            json_t *doc = loaded(text);
            assert_true(bytes_equal_str(json_document_raw(bytes_of_str(text), json_object_get(doc, "json")),
                                        values[i]));
            json_decref(doc);
        }
    }
}

TEST(test_each_of_a_batch_has_its_own)
{
    static const char text[] =
        "{\"messages\":[{\"json\":1.10},{\"n\":7}, {\"x\":[{\"json\":5}],\"json\":-0} ]}";
    json_t *doc = loaded(text), *list = json_object_get(doc, "messages");
    struct bytes all = bytes_of_str(text);
    assert_true(
        bytes_equal_str(json_document_raw(all, json_object_get(json_array_get(list, 0), "json")), "1.10"));
    assert_null(json_object_get(json_array_get(list, 1), "json"));
    assert_int_equal(json_integer_value(json_object_get(json_array_get(list, 1), "n")), 7);
    json_t *third = json_array_get(list, 2);
    assert_true(bytes_equal_str(json_document_raw(all, json_object_get(third, "json")), "-0"));
    assert_int_equal(
        json_integer_value(json_object_get(json_array_get(json_object_get(third, "x"), 0), "json")), 5);
    json_decref(doc);
    assert_int_equal(json_document_raw(all, NULL).len, 0);
}

TEST(test_what_is_not_json_is_refused)
{
    static const char *const texts[] = {"",
                                        "{",
                                        "{\"json\":}",
                                        "{\"json\":01}",
                                        "{\"json\":1 2}",
                                        "{\"json\":1\"a\"}",
                                        "{\"json\"",
                                        "{\"json\":-}",
                                        "{\"json\":[1,]}",
                                        "{\"json\":{\"a\":1]}}",
                                        "{\"json\":tru}",
                                        "{\"json\":1}}",
                                        "{\"json\":1 \"a\":2}",
                                        "{\"json\":1,\"json\":2}",
                                        "{\"json\":\"\xff\"}",
                                        "{\"json\":\"a}",
                                        "{json:1}",
                                        "{\"messages\":[{\"json\":1}{\"json\":2}]}",
                                        "{\"json\":1,}",
                                        "{,\"json\":1}",
                                        "{\"json\":,1}",
                                        "{\"json\":{}1e5}",
                                        "{\"json\":\"a\".5}",
                                        "{\"json\":[1e999,]}",
                                        "{\"json\":[1e999 1]}",
                                        "{\"json\":[1e999,01]}",
                                        "{\"json\":[1e999,1e]}",
                                        "{\"json\":[1e999,1e5.5]}",
                                        "{\"json\":[1e999,-]}",
                                        "{\"json\":0" LONG_INTEGER "}"};
    for (size_t i = 0; i < COUNT_OF(texts); i++)
        refused(bytes_of_str(texts[i]), JSON_FAULT_SYNTAX, "not valid JSON at byte ");
}

TEST(test_a_nul_byte_is_no_json)
{
    static const char text[] = "{\"a\":1\0}";
    refused(bytes_of(text, sizeof text - 1), JSON_FAULT_SYNTAX, "at byte 6: a NUL byte");
    refused(bytes_of("1\0", 2), JSON_FAULT_SYNTAX, "at byte 1: a NUL byte");
}

TEST(test_positions_are_those_of_the_text)
{
    refused(bytes_of_str("{\"json\":[1,2,3,4,5,6,7,8,9],\"a\":x}"), JSON_FAULT_SYNTAX, "at byte 33");
    refused(bytes_of_str("{\"json\":[1,x],\"a\":1}"), JSON_FAULT_SYNTAX, "at byte 12");
}

TEST(test_limits_are_not_called_bad_json)
{
    refused(bytes_of_str("{\"headers\":{\"n\":" LONG_INTEGER "}}"), JSON_FAULT_LIMIT, "too large");
    refused(bytes_of_str("{\"json\":1,\"factor\":1e999}"), JSON_FAULT_LIMIT, "too large");
    char text[2 * JSON_DOCUMENT_DEPTH_MAX + 8];
    memset(text, '[', JSON_DOCUMENT_DEPTH_MAX + 1);
    memset(text + JSON_DOCUMENT_DEPTH_MAX + 1, ']', JSON_DOCUMENT_DEPTH_MAX + 1);
    refused(bytes_of(text, 2 * JSON_DOCUMENT_DEPTH_MAX + 2), JSON_FAULT_LIMIT, "deeper than 64 levels");
    size_t len = 2 * JSON_DOCUMENT_VALUES_MAX + 3;
    char *many = malloc(len);
    assert_non_null(many);
    memset(many, ',', len);
    refused(bytes_of(many, len), JSON_FAULT_LIMIT, "holds more than 500000 values");
    free(many);
}

TEST(test_members_one_by_one)
{
    struct bytes rest = json_raw_object(bytes_of_str(" { \"a\" : 1.0 ,\"b\\\"\":[2 ] } ")), name, value;
    assert_true(json_raw_next(&rest, &name, &value));
    assert_true(bytes_equal_str(name, "\"a\"") && bytes_equal_str(value, "1.0"));
    assert_true(json_raw_is(name, "a") && !json_raw_is(name, "ab") && !json_raw_is(name, ""));
    assert_true(json_raw_next(&rest, &name, &value));
    assert_true(bytes_equal_str(name, "\"b\\\"\"") && bytes_equal_str(value, "[2 ]"));
    assert_false(json_raw_next(&rest, &name, &value));
}
