/* What the tests of accept share: rules, one message on its way in, and the x-death that RabbitMQ writes. */
#ifndef POSTDATE_TESTS_ACCEPT_FIXTURE_H
#define POSTDATE_TESTS_ACCEPT_FIXTURE_H

#include "core/base/timestamp.h"
#include "core/message/accept.h"
#include "core/message/wire.h"
#include "tests/unit/sample.h"
#include "tests/unit/unit.h"
#include <stdlib.h>

#define NOW INT64_C(1795334400000)
#define INTAKE "postdate.intake"

static const struct accept_route routes[] = {
    {.intake_exchange = "orders.delayed", .delivery_exchange = "orders"},
    {.intake_exchange = "secret.delayed", .delivery_exchange = "secret"},
    {.intake_exchange = "orders.later", .delivery_exchange = "orders", .delay_ms = 5000},
};
static const char *const allow_all[] = {"*"};
static const struct accept_rules rules = {
    .hold = HOLD_POLICY_PLAIN,
    .intake_queue = INTAKE,
    .intake_exchange = "postdate",
    .delivery_exchange = "postdate.delivery",
    .routes = routes,
    .route_count = COUNT_OF(routes),
    .allow = allow_all,
    .allow_count = COUNT_OF(allow_all),
    .max_delay_ms = 730 * DAY_MS,
    .max_body = 1000,
    .max_properties = 1 << 16,
};

/* One message on its way in: fill headers, then call try_accept. */
struct fixture {
    struct buf headers, properties;
    struct arena arena;
    struct message message;
    struct wire_properties stored; /* what was stored, read again */
    struct err e;
};

static inline int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    if (!f)
        return -1;
    buf_init(&f->headers, 1 << 16);
    buf_init(&f->properties, 1 << 17);
    arena_init(&f->arena, 1 << 20);
    *state = f;
    return 0;
}

static inline int teardown(void **state)
{
    struct fixture *f = *state;
    buf_free(&f->headers);
    buf_free(&f->properties);
    arena_free(&f->arena);
    free(f);
    return 0;
}

static inline int try_raw(struct fixture *f, const struct accept_rules *r, const char *exchange,
                          const char *key)
{
    struct accept_input in = {
        .exchange = bytes_of_str(exchange),
        .routing_key = bytes_of_str(key),
        .properties = buf_bytes(&f->properties),
        .body = bytes_of_str("body"),
    };
    err_clear(&f->e);
    int rc = accept_message(r, &in, NOW, &f->arena, &f->message, &f->e);
    if (rc == 0) {
        assert_int_equal(wire_properties_read(f->message.properties, &f->stored, NULL), 0);
        assert_true(bytes_equal_str(f->message.body, "body"));
    }
    return rc;
}

static inline int try_with(struct fixture *f, const struct accept_rules *r, const char *exchange,
                           const char *key)
{
    buf_reset(&f->properties);
    sample_put_headers_only(&f->properties, buf_bytes(&f->headers));
    int rc = try_raw(f, r, exchange, key);
    buf_reset(&f->headers);
    return rc;
}

static inline int try_accept(struct fixture *f)
{
    return try_with(f, &rules, "postdate", "order.cancel");
}

static inline void assert_header_text(const struct fixture *f, const char *name, const char *value)
{
    struct wire_field field;
    assert_true(wire_find(f->stored.headers, name, &field));
    assert_int_equal(field.kind, 'S');
    assert_true(bytes_equal_str(field.value, value));
}

static inline bool has_header(const struct fixture *f, const char *name)
{
    struct wire_field field;
    return wire_find(f->stored.headers, name, &field);
}

/* One entry of x-death as RabbitMQ writes it. */
static inline void put_death(struct buf *items, const char *queue, const char *exchange,
                             const char *const *keys, size_t count)
{
    struct buf death, names;
    buf_init(&death, 4096);
    buf_init(&names, 4096);
    for (size_t i = 0; i < count; i++)
        wire_put_item(&names, 'S', bytes_of_str(keys[i]));
    wire_put_int64(&death, bytes_of_str("count"), 1);
    sample_put_text(&death, "reason", "expired");
    sample_put_text(&death, "queue", queue);
    sample_put(&death, "time", 'T', bytes_of("\0\0\0\0\0\0\0\1", 8));
    sample_put_text(&death, "exchange", exchange);
    wire_put_field(&death, bytes_of_str("routing-keys"), 'A', buf_bytes(&names));
    sample_put_text(&death, "original-expiration", "250");
    wire_put_item(items, 'F', buf_bytes(&death));
    buf_free(&death);
    buf_free(&names);
}

static const char *const death_keys[] = {"order.cancel", "copy.one", "copy.two"};

static inline void put_first_and_last_death(struct buf *headers, const char *first, const char *last)
{
    sample_put_text(headers, "x-first-death-queue", first);
    sample_put_text(headers, "x-first-death-reason", "expired");
    sample_put_text(headers, "x-first-death-exchange", "e");
    sample_put_text(headers, "x-last-death-queue", last);
    sample_put_text(headers, "x-last-death-reason", "expired");
}

#endif
