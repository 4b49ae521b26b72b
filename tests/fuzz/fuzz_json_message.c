/* The message object of HTTP, control queue and NDJSON: parsed, shown as users see it, parsed again from
 * that, it is the same message. */
#include "core/base/timestamp.h"
#include "core/message/publish_headers.h"
#include "core/message/wire.h"
#include "gateway/json/json_document.h"
#include "gateway/json/json_message.h"
#include "gateway/json/json_plain.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

static const char *const allow[] = {"orders*", ""};
static const struct accept_rules rules = {.hold = HOLD_POLICY_PLAIN,
                                          .intake_queue = "postdate.intake",
                                          .intake_exchange = "postdate",
                                          .delivery_exchange = "postdate.delivery",
                                          .allow = allow,
                                          .allow_count = 2,
                                          .max_delay_ms = INT64_C(730) * DAY_MS,
                                          .max_body = 100,
                                          .max_properties = 4096};

static void check_message(const struct message *m)
{
    struct wire_properties p;
    struct err e = {0};
    struct buf out;
    FUZZ_HOLDS(m->due_ms >= (m->counted_from_ms ? FUZZ_NOW_MS : TIMESTAMP_MIN_MS) &&
               m->due_ms <= FUZZ_NOW_MS + rules.max_delay_ms);
    FUZZ_HOLDS(m->exchange.len <= MESSAGE_NAME_MAX && bytes_is_text(m->exchange));
    FUZZ_HOLDS(m->routing_key.len <= MESSAGE_NAME_MAX && bytes_is_text(m->routing_key));
    FUZZ_HOLDS(m->key.len <= MESSAGE_NAME_MAX && bytes_is_text(m->key));
    FUZZ_HOLDS(m->body.len <= rules.max_body && m->properties.len <= rules.max_properties);
    FUZZ_HOLDS(wire_properties_read(m->properties, &p, &e) == 0);
    FUZZ_HOLDS(!(p.flags & WIRE_USER_ID) && (p.flags & WIRE_DELIVERY_MODE));
    buf_init(&out, m->properties.len + 256);
    FUZZ_HOLDS(publish_headers_build(m, &out, &e) == 0);
    buf_free(&out);
}

/* What was shown without what only answers have. */
static json_t *as_request(struct bytes shown)
{
    static const char *const answers[] = {"id", "state", "created_at", "settled_at", "attempts", "error"};
    json_t *o =
        json_loadb((const char *)shown.data, shown.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    FUZZ_HOLDS(json_is_object(o));
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
        json_object_del(o, answers[i]);
    /* The default exchange of messages may be one that may not be named. */
    if (bytes_equal_str(json_text(json_object_get(o, "exchange")), rules.delivery_exchange))
        json_object_del(o, "exchange");
    return o;
}

static void check_same_fields(const struct message *m, const struct message *again)
{
    FUZZ_HOLDS(again->due_ms == m->due_ms && again->hold == m->hold);
    FUZZ_HOLDS(bytes_equal(again->exchange, m->exchange) && bytes_equal(again->key, m->key));
    FUZZ_HOLDS(bytes_equal(again->routing_key, m->routing_key) && bytes_equal(again->body, m->body));
}

static void check_same(const struct message *m, const struct message *again)
{
    struct wire_properties p, q;
    check_same_fields(m, again);
    FUZZ_HOLDS(wire_properties_read(m->properties, &p, NULL) == 0);
    FUZZ_HOLDS(wire_properties_read(again->properties, &q, NULL) == 0);
    FUZZ_HOLDS(bytes_equal(p.headers, q.headers));
    /* No headers read as {}. */
    FUZZ_HOLDS((p.flags | WIRE_HEADERS) == q.flags);
    FUZZ_HOLDS(p.timestamp == q.timestamp && bytes_equal(p.expiration, q.expiration));
    FUZZ_HOLDS(bytes_equal(p.content_type, q.content_type) && bytes_equal(p.message_id, q.message_id));
    FUZZ_HOLDS(p.priority == q.priority && p.delivery_mode == q.delivery_mode);
}

static void check_round_trip(struct json_parser *parser, struct arena *arena, const struct message *m)
{
    struct message_record record = {
        .message = *m, .next_at_ms = m->due_ms, .created_ms = FUZZ_NOW_MS, .settled_ms = -1};
    struct message again;
    struct err e = {0};
    struct buf out;
    buf_init(&out, (size_t)1 << 20);
    FUZZ_HOLDS(json_message_print(&record, JSON_STYLE_PRETTY, &out, &e) == 0);
    json_t *request = as_request(buf_bytes(&out));
    int rc = json_message_read(parser, request, arena, &again, &e);
    if (rc != 0)
        fuzz_check_err(&e, ERR_NONE); /* says what it was */
    check_same(m, &again);
    json_decref(request);
    buf_free(&out);
}

/* What is read as plain is what the whole reader makes of it. */
static void check_plain(struct bytes text)
{
    static const char *const names[] = {"routing_key", "exchange", "delay_ms", "delay",
                                        "due_at",      "body",     "key"};
    enum { COUNT = sizeof names / sizeof *names };
    json_t *values[COUNT];
    enum json_fault fault;
    struct err e = {0};
    size_t given = 0;
    if (!json_plain_read(text, names, COUNT, values))
        return;
    json_t *whole = json_document_load(text, &fault, &e);
    FUZZ_HOLDS(json_is_object(whole));
    for (size_t i = 0; i < COUNT; i++) {
        given += values[i] != NULL;
        FUZZ_HOLDS(values[i] == NULL || json_equal(values[i], json_object_get(whole, names[i])));
    }
    FUZZ_HOLDS(json_object_size(whole) == given);
    json_decref(whole);
    json_plain_free(COUNT, values);
}

/* However an object was read, it is the message that the whole reader makes of it. */
static void check_whole(struct json_parser *parser, struct bytes text, struct arena *arena,
                        const struct message *m)
{
    enum json_fault fault;
    struct err e = {0};
    struct message whole;
    json_t *object = json_document_load(text, &fault, &e);
    FUZZ_HOLDS(object != NULL && json_message_read(parser, object, arena, &whole, &e) == 0);
    check_same_fields(m, &whole);
    FUZZ_HOLDS(bytes_equal(m->properties, whole.properties));
    json_decref(object);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json_parser parser;
    struct arena arena;
    struct message m;
    struct err e = {0};
    check_plain(bytes_of(data, size));
    json_parser_init(&parser, &rules);
    parser.now_ms = FUZZ_NOW_MS;
    arena_init(&arena, (size_t)1 << 20);
    if (json_message_parse(&parser, bytes_of(data, size), &arena, &m, &e) == 0) {
        check_message(&m);
        check_whole(&parser, bytes_of(data, size), &arena, &m);
        check_round_trip(&parser, &arena, &m);
    } else {
        fuzz_check_err(&e, ERR_REJECT);
    }
    arena_free(&arena);
    json_parser_free(&parser);
    return 0;
}
