#include "tests/unit/no_memory.h"

#include "gateway/json/json_memory.h"
#include "gateway/json/json_message.h"
#include "tests/unit/sample.h"

#define NOW INT64_C(1795248000000)

static const char *const allow[] = {"*"};
static const struct accept_rules rules = {
    .hold = HOLD_POLICY_PLAIN,
    .intake_exchange = "postdate",
    .intake_queue = "postdate.intake",
    .delivery_exchange = "postdate.delivery",
    .allow = allow,
    .allow_count = 1,
    .max_delay_ms = INT64_C(86400000),
    .max_body = 1024,
    .max_properties = 2000,
};

static const char headers_json[] =
    "{\"headers\":{\"n\":1,\"d\":1.5,\"s\":\"grün\",\"b\":{\"!bytes\":\"AAEC\"},\"t\":{\"a\":[1,\"two\",[3,{}"
    "],null]},"
    "\"yes\":true},\"properties\":{\"content_type\":\"application/json\",\"priority\":3,\"message_id\":\"m\","
    "\"timestamp\":1600000000,\"delivery_mode\":2}}";

static int parse(const char *text, struct no_memory_result *out, struct err *e)
{
    struct json_parser parser;
    struct arena arena;
    struct message m = {0};
    json_parser_init(&parser, &rules);
    parser.now_ms = NOW;
    arena_init(&arena, 1 << 20);
    int rc = json_message_parse(&parser, bytes_of_str(text), &arena, &m, e);
    if (rc == 0) {
        no_memory_note(out, m.exchange);
        no_memory_note(out, m.routing_key);
        no_memory_note(out, m.key);
        no_memory_note(out, m.properties);
        no_memory_note(out, m.body);
    }
    arena_free(&arena);
    json_parser_free(&parser);
    return rc;
}

static int run_parse_text(struct no_memory_result *out, struct err *e)
{
    return parse(
        "{\"routing_key\":\"k\",\"exchange\":\"orders\",\"key\":\"order-42\",\"delay\":\"15m\",\"body\":"
        "\"b\","
        "\"on_conflict\":\"replace\",\"headers\":{\"n\":1,\"t\":{\"a\":[1,\"two\",{\"!bytes\":\"AAEC\"}]}},"
        "\"properties\":{\"content_type\":\"text/plain\",\"priority\":3,\"expiration\":\"1000\"}}",
        out, e);
}

static int run_parse_json(struct no_memory_result *out, struct err *e)
{
    return parse("{\"routing_key\":\"k\",\"delay_ms\":1,\"json\":{\"a\":[1,2,{\"b\":null}]}}", out, e);
}

static int run_parse_base64(struct no_memory_result *out, struct err *e)
{
    return parse("{\"routing_key\":\"k\",\"due_at\":\"2026-11-21T08:00:10Z\",\"body_base64\":\"AAECAwQ=\"}",
                 out, e);
}

TEST(test_parse)
{
    no_memory_sweep(run_parse_text);
    no_memory_sweep(run_parse_json);
    no_memory_sweep(run_parse_base64);
}

static int run_encode(struct no_memory_result *out, struct err *e)
{
    struct buf properties;
    buf_init(&properties, 1 << 16);
    int rc = json_message_encode(bytes_of_str(headers_json), &properties, e);
    if (rc == 0)
        no_memory_note(out, buf_bytes(&properties));
    buf_free(&properties);
    return rc;
}

TEST(test_encode)
{
    no_memory_sweep(run_encode);
}

static uint8_t stored[8192];
static struct message_record record = {
    .message = {.due_ms = NOW,
                .exchange = {.data = (const uint8_t *)"orders", .len = 6},
                .routing_key = {.data = (const uint8_t *)"k\xff", .len = 2},
                .key = {.data = (const uint8_t *)"order-42", .len = 8},
                .body = {.data = (const uint8_t *)"\0\1\2", .len = 3}},
    .state = MESSAGE_FAILED,
    .created_ms = NOW,
    .settled_ms = -1,
    .error = {.data = (const uint8_t *)"nobody there", .len = 12},
    .former_ids = {.data = (const uint8_t *)"one,another", .len = 11},
};

static int make_stored(void **state)
{
    struct buf headers, properties;
    (void)state;
    json_memory_open();
    buf_init(&headers, 1 << 16);
    buf_init(&properties, 1 << 16);
    sample_put_every_type(&headers);
    sample_put_properties(&properties, buf_bytes(&headers));
    assert_true(!properties.failed && properties.len < sizeof stored);
    memcpy(stored, properties.data, properties.len);
    record.message.properties = bytes_of(stored, properties.len);
    buf_free(&headers);
    buf_free(&properties);
    return 0;
}

static int print(unsigned style, struct no_memory_result *out, struct err *e)
{
    struct buf text;
    buf_init(&text, 1 << 16);
    int rc = json_message_print(&record, style, &text, e);
    if (rc == 0)
        no_memory_note(out, buf_bytes(&text));
    buf_free(&text);
    return rc;
}

static int run_print(struct no_memory_result *out, struct err *e)
{
    return print(JSON_STYLE_LINE, out, e);
}

static int run_print_pretty(struct no_memory_result *out, struct err *e)
{
    struct message_record kept = record;
    record.message.properties = (struct bytes){0};
    record.message.body = bytes_of_str("a text");
    record.properties_json = bytes_of_str(headers_json);
    int rc = print(JSON_STYLE_PRETTY, out, e);
    record = kept;
    return rc;
}

TEST(test_print)
{
    no_memory_sweep(run_print);
    no_memory_sweep(run_print_pretty);
}

TEST_ALL(make_stored, NULL)
