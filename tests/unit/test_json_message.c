#include "core/base/base64.h"
#include "core/base/timestamp.h"
#include "core/message/wire.h"
#include "gateway/json/json_message.h"
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOW INT64_C(1795248000000) /* 2026-11-21T08:00:00Z */

static const char *const allow[] = {"orders", "postdate.*", ""};
static const struct accept_rules rules = {
    .hold = HOLD_POLICY_PLAIN,
    .intake_exchange = "postdate",
    .intake_queue = "postdate.intake",
    .delivery_exchange = "postdate.delivery",
    .allow = allow,
    .allow_count = 3,
    .max_delay_ms = 730 * DAY_MS,
    .max_body = 1024,
    .max_properties = 2000,
};

static struct json_parser parser;
static struct arena arena;

static int setup(void **state)
{
    (void)state;
    json_parser_init(&parser, &rules);
    parser.now_ms = NOW;
    arena_init(&arena, 1 << 20);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    json_parser_free(&parser);
    arena_free(&arena);
    return 0;
}

static struct message accepted(const char *text)
{
    struct message m;
    struct err e;
    if (json_message_parse(&parser, bytes_of_str(text), &arena, &m, &e) != 0)
        fail_msg("%s: %s", text, e.text);
    return m;
}

static void refused(const char *text, const char *said)
{
    struct message m;
    struct err e;
    assert_int_equal(json_message_parse(&parser, bytes_of_str(text), &arena, &m, &e), -1);
    assert_int_equal(e.kind, ERR_REJECT);
    if (strstr(e.text, said) == NULL)
        fail_msg("wanted \"%s\" in \"%s\"", said, e.text);
}

static const char *printed(const struct message_record *r, unsigned style)
{
    static char text[4096];
    struct buf out;
    struct err e;
    buf_init(&out, sizeof text - 1);
    assert_int_equal(json_message_print(r, style, &out, &e), 0);
    memcpy(text, out.data, out.len);
    text[out.len] = '\0';
    buf_free(&out);
    return text;
}

static void has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("wanted %s in %s", part, text);
}

TEST(test_least)
{
    struct wire_properties w;
    struct err e;
    struct message m = accepted("{\"routing_key\":\"a.b\",\"delay_ms\":1500,\"body\":\"hi\"}");
    assert_true(bytes_equal_str(m.routing_key, "a.b"));
    assert_true(bytes_equal_str(m.exchange, "postdate.delivery"));
    assert_true(bytes_equal_str(m.body, "hi"));
    assert_int_equal(m.due_ms, NOW + 1500);
    assert_int_equal(m.key.len, 0);
    assert_int_equal(m.hold, HOLD_GATEWAY);
    assert_int_equal(m.on_conflict, ON_CONFLICT_KEEP);
    assert_int_equal(wire_properties_read(m.properties, &w, &e), 0);
    assert_int_equal(w.flags, WIRE_DELIVERY_MODE);
    assert_int_equal(w.delivery_mode, 2);
}

TEST(test_due_times)
{
    assert_int_equal(accepted("{\"routing_key\":\"\",\"delay\":\"15m\",\"body\":\"\"}").due_ms, NOW + 900000);
    assert_int_equal(
        accepted("{\"routing_key\":\"\",\"due_at\":\"2026-11-21T09:00:00+00:00\",\"body\":\"\"}").due_ms,
        NOW + 3600000);
    assert_int_equal(
        accepted("{\"routing_key\":\"\",\"due_at\":\"2020-01-01T00:00:00Z\",\"body\":\"\"}").due_ms,
        INT64_C(1577836800000)); /* storing it will make that "at once" */
    assert_int_equal(accepted("{\"routing_key\":\"\",\"delay_ms\":5,\"due_at\":null,\"body\":\"\"}").due_ms,
                     NOW + 5);
    refused("{\"routing_key\":\"k\",\"body\":\"\"}", "the due time is missing");
    refused("{\"routing_key\":\"k\",\"body\":\"\",\"delay_ms\":1,\"delay\":\"1s\"}", "given twice");
    refused("{\"routing_key\":\"k\",\"body\":\"\",\"delay_ms\":-1}", "delay_ms: -1 is not allowed");
    refused("{\"routing_key\":\"k\",\"body\":\"\",\"delay_ms\":1.5}", "delay_ms: 1.5");
    refused("{\"routing_key\":\"k\",\"body\":\"\",\"delay_ms\":9223372036854775807}", "too far ahead");
    refused("{\"routing_key\":\"k\",\"body\":\"\",\"delay\":\"731d\"}",
            "delay: \"731d\" is too far ahead: allowed are up to 730d");
    refused("{\"routing_key\":\"k\",\"body\":\"\",\"delay\":\"soon\"}", "delay: ");
    refused("{\"routing_key\":\"k\",\"body\":\"\",\"delay\":5}", "delay: 5 is not a string");
    refused("{\"routing_key\":\"k\",\"body\":\"\",\"due_at\":\"2026-11-21T09:00:00\"}", "due_at: ");
}

/* Also where all else is plain: a text or a number is the body, and no place in the text. */
TEST(test_json_of_each_form_is_the_body_as_written)
{
    static const char *const values[] = {"\"hello\"", "\"\"", "0",    "5",       "12",  "900", "1.50",
                                         "-0",        "1e3",  "true", "\"\\n\"", "[5]", "{}",  "{\"a\": 5}"};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char text[100];
        snprintf(text, sizeof text, "{\"routing_key\":\"k\",\"delay_ms\":1,\"json\":%s}", values[i]);
        struct message m = accepted(text);
        if (!bytes_equal_str(m.body, values[i]))
            fail_msg("%s: the body is %.*s", text, (int)m.body.len, (const char *)m.body.data);
    }
}

TEST(test_bodies)
{
    struct wire_properties w;
    struct err e;
    struct message m = accepted("{\"routing_key\":\"k\",\"delay_ms\":1,\"body_base64\":\"AP8=\"}");
    assert_int_equal(m.body.len, 2);
    assert_memory_equal(m.body.data, "\0\377", 2);
    m = accepted("{\"routing_key\":\"k\",\"delay_ms\":1,\"json\":{\"b\":1, \"a\":[true, null]}}");
    assert_true(bytes_equal_str(m.body, "{\"b\":1, \"a\":[true, null]}"));
    assert_int_equal(wire_properties_read(m.properties, &w, &e), 0);
    assert_true(bytes_equal_str(w.content_type, "application/json"));
    m = accepted(
        "{\"routing_key\":\"k\",\"delay_ms\":1,\"json\":null,\"properties\":{\"content_type\":\"x/y\"}}");
    assert_true(bytes_equal_str(m.body, "null"));
    assert_int_equal(wire_properties_read(m.properties, &w, &e), 0);
    assert_true(bytes_equal_str(w.content_type, "x/y"));
    m = accepted("{\"routing_key\":\"k\",\"delay_ms\":1,\"body\":\"a\\u0000b\"}");
    assert_int_equal(m.body.len, 3);
    refused("{\"routing_key\":\"k\",\"delay_ms\":1}", "the body is missing");
    refused("{\"routing_key\":\"k\",\"delay_ms\":1,\"body\":\"\",\"json\":1}", "the body is given twice");
    refused("{\"routing_key\":\"k\",\"delay_ms\":1,\"body\":{}}", "body: {} is not a string");
    refused("{\"routing_key\":\"k\",\"delay_ms\":1,\"body_base64\":\"AP8\"}", "is not base64");
    refused("{\"routing_key\":\"k\",\"delay_ms\":1,\"body_base64\":\"AP9=\"}", "is not base64");
    char big[1200];
    int n = snprintf(big, sizeof big, "{\"routing_key\":\"k\",\"delay_ms\":1,\"body\":\"%01025d\"}", 0);
    assert_true(n > 0);
    refused(big, "1025 bytes long: allowed are up to 1024");

    parser.outside_body = bytes_of("\xff", 1);
    m = accepted("{\"routing_key\":\"k\",\"delay_ms\":1}");
    assert_int_equal(m.body.len, 1);
    refused("{\"routing_key\":\"k\",\"delay_ms\":1,\"body\":\"\"}", "given twice");
}

TEST(test_names)
{
    struct message m =
        accepted("{\"routing_key\":\"k\",\"delay_ms\":1,\"body\":\"\",\"exchange\":\"\",\"key\":\"o-1\","
                 "\"on_conflict\":\"replace\",\"hold\":\"broker\"}");
    assert_int_equal(m.exchange.len, 0);
    assert_true(bytes_equal_str(m.key, "o-1"));
    assert_int_equal(m.on_conflict, ON_CONFLICT_REPLACE);
    assert_int_equal(m.hold, HOLD_BROKER);
    m = accepted("{\"routing_key\":\"k\",\"delay_ms\":1,\"body\":\"\",\"hold\":\"broker\",\"properties\":{"
                 "\"expiration\":5}}");
    assert_int_equal(m.hold, HOLD_BROKER);
    parser.rules.hold = HOLD_POLICY_ALL; /* handover.what = all */
    m = accepted("{\"routing_key\":\"k\",\"delay_ms\":1,\"body\":\"\",\"key\":\"o-1\"}");
    assert_int_equal(m.hold, HOLD_BROKER);
    m = accepted("{\"routing_key\":\"k\",\"delay_ms\":1,\"body\":\"\",\"hold\":\"gateway\"}");
    assert_int_equal(m.hold, HOLD_GATEWAY);
    parser.rules.hold = HOLD_POLICY_PLAIN;
    refused("{\"delay_ms\":1,\"body\":\"\"}", "routing_key is missing");
    refused("{\"routing_key\":5,\"delay_ms\":1,\"body\":\"\"}", "routing_key: 5 is not a string");
    refused("{\"routing_key\":\"a\\u0000\",\"delay_ms\":1,\"body\":\"\"}", "NUL");
    refused("{\"routing_key\":\"k\",\"delay_ms\":1,\"body\":\"\",\"exchange\":\"pay\"}", "delivery.allow");
    refused("{\"routing_key\":\"k\",\"delay_ms\":1,\"body\":\"\",\"key\":\"\"}", "key: is empty");
    refused("{\"routing_key\":\"k\",\"delay_ms\":1,\"body\":\"\",\"on_conflict\":\"x\"}",
            "keep, replace, reject");
    refused("{\"routing_key\":\"k\",\"delay_ms\":1,\"body\":\"\",\"hold\":1}", "gateway, broker");
    refused("{\"routing_key\":\"k\",\"delay_ms\":1,\"body\":\"\",\"dealy\":1}", "unknown field \"dealy\"");
    char text[400];
    snprintf(text, sizeof text, "{\"routing_key\":\"%0256d\",\"delay_ms\":1,\"body\":\"\"}", 0);
    refused(text, "256 bytes long: allowed are up to 255");
}

TEST(test_malformed)
{
    refused("", "it is empty; write an object, {} at least");
    refused("[]", "not a JSON object");
    refused("{\"routing_key\":\"k\"", "not valid JSON");
    refused("{\"delay_ms\":1,\"delay_ms\":2}", "duplicate");
    refused("{\"routing_key\":\"\xff\"}", "not valid JSON");
    char deep[200];
    memset(deep, '[', 100);
    deep[100] = '\0';
    refused(deep, "nested deeper than 64");
}

TEST(test_properties)
{
    struct wire_properties w;
    struct err e;
    struct message m = accepted(
        "{\"routing_key\":\"k\",\"delay_ms\":1,\"body\":\"\",\"properties\":{\"content_type\":\"t/"
        "p\",\"content_encoding\":\"gzip\","
        "\"delivery_mode\":1,\"priority\":255,\"correlation_id\":\"c\",\"reply_to\":\"r\",\"expiration\":"
        "\"60000\","
        "\"message_id\":\"m\",\"timestamp\":\"2026-11-21T08:00:00Z\",\"type\":\"y\",\"app_id\":\"a\"}}");
    assert_int_equal(wire_properties_read(m.properties, &w, &e), 0);
    assert_int_equal(w.delivery_mode, 1);
    assert_int_equal(w.priority, 255);
    assert_int_equal(w.timestamp, NOW / 1000);
    assert_true(bytes_equal_str(w.expiration, "60000"));
    assert_true(bytes_equal_str(w.app_id, "a"));
#define WITH(p) "{\"routing_key\":\"k\",\"delay_ms\":1,\"body\":\"\",\"properties\":{" p "}}"
    refused(WITH("\"user_id\":\"guest\""), "properties.user_id: cannot be set");
    refused(WITH("\"priority\":256"), "properties.priority: 256");
    refused(WITH("\"delivery_mode\":3"), "from 1 to 2");
    refused(WITH("\"expiration\":\"5s\""), "properties.expiration: ");
    refused(WITH("\"expiration\":-1"), "properties.expiration: -1");
    refused(WITH("\"timestamp\":\"x\""), "properties.timestamp: ");
    refused(WITH("\"typ\":\"x\""), "unknown property \"typ\"");
    refused(WITH("\"type\":5"), "properties.type: 5 is not a string");
    refused("{\"routing_key\":\"k\",\"delay_ms\":1,\"body\":\"\",\"properties\":[]}", "is not an object");
}

TEST(test_headers)
{
    struct wire_properties w;
    struct wire_field f;
    struct err e;
    struct message m = accepted(
        "{\"routing_key\":\"k\",\"delay_ms\":1,\"body\":\"\",\"headers\":{\"i\":-5,\"l\":5000000000}}");
    assert_int_equal(wire_properties_read(m.properties, &w, &e), 0);
    assert_true(wire_find(w.headers, "i", &f) && f.kind == 'I');
    assert_true(wire_find(w.headers, "l", &f) && f.kind == 'l');
#undef WITH
#define WITH(h) "{\"routing_key\":\"k\",\"delay_ms\":1,\"body\":\"\",\"headers\":" h "}"
    refused(WITH("5"), "headers: 5 is not an object");
    refused(WITH("{\"x-postdate-id\":1}"), "is reserved");
    refused(WITH("{\"x-delay\":1}"), "is reserved");
    refused(WITH("{\"x-opt-delivery-\\n\\u007f\":1}"), "headers: x-opt-delivery-\\x0a\\x7f is reserved");
    refused(WITH("{\"b\":{\"!bytes\":\"?\"}}"), "is not base64");
    refused(WITH("{\"d\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}"),
            "nested deeper than 32");
    char text[2600];
    snprintf(text, sizeof text,
             "{\"routing_key\":\"k\",\"delay_ms\":1,\"body\":\"\",\"headers\":{\"h\":\"%02100d\"}}", 0);
    refused(text, "too large: allowed are up to 2000");
}

/* RabbitMQ closes the channel over other values. */
TEST(test_more_routes)
{
    struct wire_properties w;
    struct wire_field f;
    struct err e;
    struct message m = accepted(WITH("{\"CC\":[\"a\",\"b\"],\"BCC\":[],\"cc\":\"free\"}"));
    assert_int_equal(wire_properties_read(m.properties, &w, &e), 0);
    assert_true(wire_find(w.headers, "CC", &f) && f.kind == 'A');
    assert_true(wire_find(w.headers, "BCC", &f) && f.kind == 'A');
    refused(WITH("{\"CC\":\"foo\"}"), "headers: CC: \"foo\" is not allowed: write an array of strings");
    refused(WITH("{\"BCC\":7}"), "headers: BCC: 7 is not allowed");
    refused(WITH("{\"CC\":null}"), "headers: CC: null is not allowed");
    refused(WITH("{\"CC\":{}}"), "headers: CC: {} is not allowed");
    refused(WITH("{\"CC\":[\"a\",5]}"), "headers: CC: [\"a\",5] is not allowed");
    refused(WITH("{\"BCC\":[{\"!bytes\":\"AA==\"}]}"), "headers: BCC: ");
}

TEST(test_round_trip)
{
    static const char headers[] =
        "\"headers\":{\"s\":\"text\",\"i\":-5,\"l\":5000000000,\"d\":1.5,\"t\":true,\"f\":false,\"v\":null,"
        "\"o\":{\"n\":{\"x\":1}},\"a\":[1,\"b\",[2],{\"c\":null}],\"b\":{\"!bytes\":\"AP8=\"}}";
    char text[1000];
    snprintf(text, sizeof text,
             "{\"routing_key\":\"k\",\"delay_ms\":1,\"body\":\"h\xc3\xa9\",\"key\":\"o\",\"properties\":{"
             "\"priority\":3},%s}",
             headers);
    struct message_record r = {.message = accepted(text), .created_ms = NOW, .settled_ms = -1};
    r.message.id = message_id_make(r.message.due_ms, (const uint8_t *)"0123456789");
    const char *out = printed(&r, JSON_STYLE_LINE);
    has(out, headers);
    has(out, "\"properties\":{\"delivery_mode\":2,\"priority\":3}");
    has(out, "\"key\":\"o\",\"exchange\":\"postdate.delivery\",\"routing_key\":\"k\",\"due_at\":\"2026-11-"
             "21T08:00:00.001Z\","
             "\"state\":\"scheduled\",\"hold\":\"gateway\",\"created_at\":\"2026-11-21T08:00:00.000Z\","
             "\"settled_at\":null,\"attempts\":0,\"error\":null");
    has(out, "\"body\":\"h\xc3\xa9\"}");
    assert_null(strstr(printed(&r, JSON_STYLE_NO_BODY), "\"body\""));
    r.message.body = bytes_of("a\0b", 3);
    has(printed(&r, JSON_STYLE_LINE), "\"body_base64\":\"YQBi\"}");
    r.message.body = (struct bytes){0};
    has(printed(&r, JSON_STYLE_LINE), "\"body\":\"\"}");
    r.state = MESSAGE_CANCELLED;
    r.message.properties = (struct bytes){0};
    has(printed(&r, JSON_STYLE_LINE), "\"properties\":{},\"headers\":{},\"body\":null}");
}

TEST(test_other_wire_kinds)
{
    struct buf table, properties;
    buf_init(&table, 1000);
    buf_init(&properties, 1000);
    wire_put_string(&table, bytes_of_str("bad"), bytes_of("\xff", 1));
    wire_put_field(&table, bytes_of_str("nan"), 'd', bytes_of("\x7f\xf8\0\0\0\0\0\0", 8));
    static const uint8_t other[] = "\x01TT\0\0\0\0\0\0\0\x05" /* T: 5 */
                                   "\x01"
                                   "DD\x02\0\0\0\x7b"                       /* D: 1.23 */
                                   "\x01LL\xff\xff\xff\xff\xff\xff\xff\xff" /* L: 2^64 - 1 */
                                   "\x01"
                                   "BB\xff"; /* B: 255 */
    buf_put(&table, other, sizeof other - 1);
    struct wire_properties w = {.flags = WIRE_HEADERS, .headers = buf_bytes(&table)};
    wire_properties_write(&w, &properties);
    struct message_record r = {.message.properties = buf_bytes(&properties), .settled_ms = NOW};
    const char *out = printed(&r, JSON_STYLE_LINE);
    has(out, "\"bad\":{\"!bytes\":\"/w==\"},\"nan\":\"NaN\",\"T\":5,\"D\":1.23");
    has(out, "\"L\":\"18446744073709551615\",\"B\":255");
    struct err e;
    struct buf nowhere;
    buf_init(&nowhere, 1000);
    r.message.properties = bytes_of("\xff", 1);
    assert_int_equal(json_message_print(&r, JSON_STYLE_LINE, &nowhere, &e), -1);
    buf_free(&nowhere);
    buf_free(&table);
    buf_free(&properties);
}

TEST(test_base64)
{
    static const char *const pairs[][2] = {{"", ""},        {"f", "Zg=="},        {"fo", "Zm8="},
                                           {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct buf out;
        struct bytes back;
        buf_init(&out, 100);
        base64_encode(bytes_of_str(pairs[i][0]), &out);
        assert_true(bytes_equal_str(buf_bytes(&out), pairs[i][1]));
        assert_true(base64_decode(bytes_of_str(pairs[i][1]), &arena, &back));
        assert_true(bytes_equal_str(back, pairs[i][0]));
        buf_free(&out);
    }
    static const char *const bad[] = {"Z", "Zg", "Zg=", "Zg=a", "====", "Z===", "Zm 9", "Zm9v\n", "Zh=="};
    struct bytes back;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(base64_decode(bytes_of_str(bad[i]), &arena, &back));
}

TEST(test_deadline)
{
    struct message m = accepted("{\"routing_key\":\"k\",\"due_at\":\"2026-11-22T09:00:00Z\",\"body\":\"\","
                                "\"hold\":\"broker\",\"deadline\":\"2026-11-22T10:00:00.5+01:00\"}");
    assert_int_equal(m.deadline_ms, m.due_ms + 500);
    assert_int_equal(m.hold, HOLD_GATEWAY);
    assert_int_equal(
        accepted("{\"routing_key\":\"k\",\"delay_ms\":1,\"body\":\"\",\"deadline\":null}").deadline_ms, 0);
    refused("{\"routing_key\":\"k\",\"delay_ms\":1,\"body\":\"\",\"deadline\":5}",
            "deadline: 5 is not a string");
    refused("{\"routing_key\":\"k\",\"delay_ms\":1,\"body\":\"\",\"deadline\":\"soon\"}", "deadline: ");
    refused("{\"routing_key\":\"k\",\"delay\":\"400d\",\"body\":\"\",\"deadline\":\"2027-11-22T09:00:00Z\"}",
            "deadline: 2027-11-22T09:00:00.000Z lies before the due time");

    struct message_record r = {.message = m, .state = MESSAGE_EXPIRED, .settled_ms = NOW};
    has(printed(&r, JSON_STYLE_LINE), "\"deadline\":\"2026-11-22T09:00:00.500Z\",\"state\":\"expired\"");
    r.message.deadline_ms = 0;
    assert_null(strstr(printed(&r, JSON_STYLE_LINE), "deadline"));
}

TEST_EACH(setup, teardown)
