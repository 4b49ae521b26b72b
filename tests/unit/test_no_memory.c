#include "tests/unit/no_memory.h"

#include "core/base/base64.h"
#include "core/base/due_heap.h"
#include "core/base/timestamp.h"
#include "core/message/accept.h"
#include "core/message/envelope.h"
#include "core/message/publish_headers.h"
#include "core/message/wire.h"
#include "gateway/config/config.h"
#include "tests/unit/sample.h"
#include <stdio.h>
#include <unistd.h>

#define NOW INT64_C(1795334400000)

static const char *const allow_all[] = {"*"};
static const struct accept_rules rules = {
    .hold = HOLD_POLICY_PLAIN,
    .intake_queue = "postdate.intake",
    .intake_exchange = "postdate",
    .delivery_exchange = "postdate.delivery",
    .allow = allow_all,
    .allow_count = 1,
    .max_delay_ms = 730 * DAY_MS,
    .max_body = 100000,
    .max_properties = 1 << 17,
};

static uint8_t stored[32768]; /* properties of a message with everything, and a long header */
static struct bytes stored_properties;

static void put_dead_letter_mark(struct buf *headers)
{
    struct buf entry, items;
    buf_init(&entry, 4096);
    buf_init(&items, 4096);
    sample_put_text(&entry, "queue", "postdate.intake");
    sample_put_text(&entry, "reason", "expired");
    sample_put_text(&entry, "exchange", "postdate");
    sample_put_text(&entry, "original-expiration", "5000");
    wire_put_item(&items, 'F', buf_bytes(&entry));
    buf_reset(&entry);
    sample_put_text(&entry, "queue", "somebody else's");
    wire_put_item(&items, 'F', buf_bytes(&entry));
    wire_put_field(headers, bytes_of_str("x-death"), 'A', buf_bytes(&items));
    buf_free(&entry);
    buf_free(&items);
}

static int make_stored(void **state)
{
    static uint8_t text[20000];
    struct buf headers, properties;
    (void)state;
    buf_init(&headers, 1 << 16);
    buf_init(&properties, 1 << 16);
    sample_put_every_type(&headers);
    sample_put_text(&headers, "x-postdate-key", "mine");
    sample_put_text(&headers, "x-postdate-exchange", "orders");
    sample_put_text(&headers, "x-delay", "5000");
    memset(text, 'x', sizeof text);
    sample_put(&headers, "long", 'S', bytes_of(text, sizeof text));
    put_dead_letter_mark(&headers);
    sample_put_properties(&properties, buf_bytes(&headers));
    assert_false(properties.failed);
    assert_true(properties.len < sizeof stored);
    memcpy(stored, properties.data, properties.len);
    stored_properties = bytes_of(stored, properties.len);
    buf_free(&headers);
    buf_free(&properties);
    return 0;
}

static int run_accept(struct no_memory_result *out, struct err *e)
{
    struct accept_input in = {.exchange = bytes_of_str("postdate"),
                              .routing_key = bytes_of_str("order.cancel"),
                              .properties = stored_properties,
                              .body = bytes_of_str("body")};
    struct arena arena;
    struct message m = {0};
    arena_init(&arena, 1 << 20);
    int rc = accept_message(&rules, &in, NOW, &arena, &m, e);
    if (rc == 0) {
        no_memory_note(out, m.exchange);
        no_memory_note(out, m.routing_key);
        no_memory_note(out, m.key);
        no_memory_note(out, m.properties);
        no_memory_note(out, m.body);
    }
    arena_free(&arena);
    return rc;
}

TEST(test_accept)
{
    no_memory_sweep(run_accept);
}

static int run_outgoing(struct no_memory_result *out, struct err *e)
{
    static const uint8_t random[10] = {1, 2, 3};
    struct message m = {.id = message_id_make(NOW, random), .due_ms = NOW, .properties = stored_properties};
    struct buf plain;
    buf_init(&plain, 1 << 17);
    int rc = publish_headers_build(&m, &plain, e);
    if (rc == 0 && plain.failed) /* as those who call it ask */
        rc = err_set(e, ERR_BUG, "out of memory");
    no_memory_note(out, buf_bytes(&plain));
    buf_free(&plain);
    return rc;
}

TEST(test_outgoing)
{
    no_memory_sweep(run_outgoing);
}

static int run_parked(struct no_memory_result *out, struct err *e)
{
    struct accept_input in = {.exchange = bytes_of_str("postdate"),
                              .routing_key = bytes_of_str("order.cancel"),
                              .properties = stored_properties};
    struct buf properties;
    buf_init(&properties, 1 << 17);
    reject_headers_build(&in, "no good", &properties);
    int rc = properties.failed ? err_set(e, ERR_BUG, "out of memory") : 0;
    no_memory_note(out, buf_bytes(&properties));
    buf_free(&properties);
    return rc;
}

TEST(test_parked)
{
    no_memory_sweep(run_parked);
}

static int run_heap(struct no_memory_result *out, struct err *e)
{
    static int numbers[1000];
    struct due_heap heap;
    int rc = 0;
    due_heap_init(&heap);
    for (int i = 0; i < 1000 && rc == 0; i++)
        if (due_heap_push(&heap, (i * 7919) % 1000, &numbers[i]) != 0)
            rc = err_set(e, ERR_BUG, "out of memory");
    int64_t last = -1;
    size_t popped = 0;
    for (const struct due_entry *entry; (entry = due_heap_peek(&heap)) != NULL; popped++) {
        assert_true(entry->due_ms >= last);
        last = entry->due_ms;
        due_heap_pop(&heap);
    }
    if (rc == 0)
        assert_int_equal(popped, 1000);
    no_memory_note(out, bytes_of((const uint8_t *)&popped, sizeof popped));
    due_heap_free(&heap);
    return rc;
}

static int run_envelope(struct no_memory_result *out, struct err *e)
{
    struct message m = {.exchange = bytes_of_str("orders"), .properties = stored_properties};
    struct buf envelope;
    buf_init(&envelope, 1 << 17);
    int rc = envelope_write(&m, bytes_of("", 0), &envelope, e);
    no_memory_note(out, buf_bytes(&envelope));
    buf_free(&envelope);
    return rc;
}

TEST(test_envelope)
{
    no_memory_sweep(run_envelope);
}

TEST(test_heap)
{
    no_memory_sweep(run_heap);
}

static int run_base64(struct no_memory_result *out, struct err *e)
{
    struct buf text;
    struct arena arena;
    struct bytes back;
    buf_init(&text, 1 << 17);
    arena_init(&arena, 1 << 20);
    base64_encode(stored_properties, &text);
    int rc = text.failed ? err_set(e, ERR_BUG, "out of memory") : 0;
    if (rc == 0) /* what it encoded itself is base64: only memory can be missing */
        rc = base64_decode(buf_bytes(&text), &arena, &back) && back.data
                 ? 0
                 : err_set(e, ERR_BUG, "out of memory");
    if (rc == 0)
        no_memory_note(out, back);
    buf_free(&text);
    arena_free(&arena);
    return rc;
}

TEST(test_base64)
{
    no_memory_sweep(run_base64);
}

static char config_path[64];

static int run_config(struct no_memory_result *out, struct err *e)
{
    struct config c;
    if (config_load(&c, config_path, NULL, e) != 0) {
        if (strstr(e->text, "memory")) /* what is wrong is no option */
            e->kind = ERR_BUG;
        return -1;
    }
    const char *const texts[] = {c.postgres.url,      c.amqp.url,    c.intake.exchange,
                                 c.delivery.exchange, c.http.listen, c.source};
    for (size_t i = 0; i < COUNT_OF(texts); i++)
        no_memory_note(out, texts[i] ? bytes_of_str(texts[i]) : (struct bytes){0});
    for (size_t i = 0; i < c.delivery.allow_count; i++)
        no_memory_note(out, bytes_of_str(c.delivery.allow[i]));
    for (size_t i = 0; i < c.route_count; i++) {
        no_memory_note(out, bytes_of_str(c.routes[i].intake_exchange));
        no_memory_note(out, bytes_of_str(c.routes[i].delivery_exchange));
    }
    config_free(&c);
    return 0;
}

TEST(test_config)
{
    snprintf(config_path, sizeof config_path, "/tmp/postdate-no-memory-%ld.conf", (long)getpid());
    FILE *f = fopen(config_path, "w");
    assert_non_null(f);
    fputs("[postgres]\nurl = postgresql:///one\n[amqp]\nurl = amqp://u:p@h/v\n[intake]\nexchange = in\n"
          "[route]\na.delayed = a\nb.delayed = b\n[delivery]\nexchange = out\nallow = out, a, b, more.*\n"
          "[http]\nlisten = 127.0.0.1:8480\n[log]\nlevel = debug\n",
          f);
    fclose(f);
    setenv("POSTDATE_ROUTE", "c.delayed=c,d.delayed=d", 1);
    setenv("POSTDATE_AMQP_URL", "amqp://x:y@z/", 1);
    setenv("POSTDATE_DELIVERY_ALLOW", "*", 1);
    no_memory_sweep(run_config);
    unlink(config_path);
}

TEST_ALL(make_stored, NULL)
