#include "gateway/json/json_document.h"
#include "gateway/json/json_plain.h"
#include "tests/unit/unit.h"
#include <string.h>

static const char *const names[] = {"a", "bb", "n"};
static json_t *values[3];

static bool is_plain(const char *text)
{
    return json_plain_read(bytes_of_str(text), names, 3, values);
}

static void check_same(const char *text)
{
    enum json_fault fault;
    struct err e = {0};
    size_t given = 0;
    assert_true(is_plain(text));
    json_t *whole = json_document_load(bytes_of_str(text), &fault, &e);
    assert_non_null(whole);
    for (size_t i = 0; i < 3; i++) {
        given += values[i] != NULL;
        assert_true(values[i] == NULL || json_equal(values[i], json_object_get(whole, names[i])));
    }
    assert_int_equal(given, json_object_size(whole));
    json_decref(whole);
    json_plain_free(3, values);
    assert_null(values[0]);
}

TEST(test_plain_ones_read_as_the_whole_reader_reads_them)
{
    static const char *const texts[] = {
        "{\"a\":\"x\"}", " {\t\"a\" : \"\" ,\r\n\"bb\":\"some words, {not} [a] tree: 7\"}\n", "{\"n\":0}",
        "{\"n\":999999999999999,\"a\":\"\x7f\"}", "{\"bb\":3,\"a\":4,\"n\":\"5\"}"};
    for (size_t i = 0; i < COUNT_OF(texts); i++)
        check_same(texts[i]);
}

TEST(test_whatever_is_not_is_left)
{
    static const char *const texts[] = {"",
                                        "{}",
                                        "{",
                                        "[]",
                                        "null",
                                        "7",
                                        "\"a\"",
                                        "{\"a\":\"x\"",
                                        "{\"a\":\"x\"}}",
                                        "{\"a\":\"x\"} {}",
                                        "{\"a\":\"x\",}",
                                        "{,\"a\":\"x\"}",
                                        "{\"a\" \"x\"}",
                                        "{a:\"x\"}",
                                        "{\"a\":\"x\",\"a\":\"y\"}",
                                        "{\"c\":\"x\"}",
                                        "{\"\":\"x\"}",
                                        "{\"a\":\"\\n\"}",
                                        "{\"a\":\"\xc3\xa4\"}",
                                        "{\"a\":\"\n\"}",
                                        "{\"a\":\"x}",
                                        "{\"a\":null}",
                                        "{\"a\":true}",
                                        "{\"a\":[]}",
                                        "{\"a\":{}}",
                                        "{\"n\":-1}",
                                        "{\"n\":01}",
                                        "{\"n\":1.0}",
                                        "{\"n\":1e3}",
                                        "{\"n\":1000000000000000}",
                                        "{\"n\":}",
                                        "{\"n\":7x}",
                                        "\xef\xbb\xbf{\"a\":\"x\"}"};
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        if (is_plain(texts[i]))
            fail_msg("%s was read", texts[i]);
        assert_null(values[0]);
    }
    assert_false(json_plain_read(bytes_of("{\"a\":\"x\"}\0", 10), names, 3, values));
    assert_false(json_plain_read(bytes_of("{\"a\":\"x\0y\"}", 11), names, 3, values));
    for (size_t len = 0; len < 9; len++)
        assert_false(json_plain_read(bytes_of("{\"a\":\"x\"}", len), names, 3, values));
}
