/* A property list that has every property and a header of every AMQP field type. */
#ifndef POSTDATE_TESTS_SAMPLE_H
#define POSTDATE_TESTS_SAMPLE_H

#include "core/base/buf.h"
#include "core/message/wire.h"

/* One table entry of any kind from the raw bytes of its value. */
static inline void sample_put(struct buf *out, const char *name, char kind, struct bytes value)
{
    wire_put_field(out, bytes_of_str(name), kind, value);
}

static inline void sample_put_text(struct buf *out, const char *name, const char *value)
{
    wire_put_string(out, bytes_of_str(name), bytes_of_str(value));
}

static inline void sample_put_every_type(struct buf *out)
{
    static const uint8_t raw[8] = {0xFE, 0x01, 0x80, 0xFF, 0x00, 0x7F, 0x02, 0x03};
    static const struct {
        const char *name;
        char kind;
        size_t len;
    } fields[] = {
        {"t", 't', 1}, {"b", 'b', 1}, {"B", 'B', 1},     {"s", 's', 2},     {"u", 'u', 2},
        {"I", 'I', 4}, {"i", 'i', 4}, {"l", 'l', 8},     {"L", 'L', 8},     {"f", 'f', 4},
        {"d", 'd', 8}, {"D", 'D', 5}, {"S", 'S', 7},     {"x", 'x', 8},     {"T", 'T', 8},
        {"V", 'V', 0}, {"", 'S', 0},  {"twice", 'I', 4}, {"twice", 'I', 4},
    };
    size_t start = out->len;
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        sample_put(out, fields[i].name, fields[i].kind, bytes_of(raw, fields[i].len));
    struct buf inner, items;
    buf_init(&inner, 4096);
    buf_init(&items, 4096);
    buf_put(&inner, out->data + start, out->len - start);
    wire_put_item(&items, 'F', buf_bytes(&inner));
    wire_put_item(&items, 'S', bytes_of_str("in an array"));
    wire_put_item(&items, 'A', (struct bytes){0});
    wire_put_item(&items, 'V', (struct bytes){0});
    wire_put_field(out, bytes_of_str("F"), 'F', buf_bytes(&inner));
    wire_put_field(out, bytes_of_str("A"), 'A', buf_bytes(&items));
    buf_free(&inner);
    buf_free(&items);
}

/* Every property but user_id; headers are the entries given. */
static inline void sample_put_properties(struct buf *out, struct bytes headers)
{
    struct wire_properties p = {
        .flags = 0xFFFC & (uint16_t)~WIRE_USER_ID,
        .content_type = bytes_of_str("application/octet-stream"),
        .content_encoding = bytes_of_str("gzip"),
        .headers = headers,
        .delivery_mode = 2,
        .priority = 9,
        .correlation_id = bytes_of_str("correlation"),
        .reply_to = bytes_of_str("answers"),
        .expiration = bytes_of_str("60000"),
        .message_id = bytes_of_str("my own id"),
        .timestamp = UINT64_C(0xFFFFFFFFFFFFFFFF),
        .type = bytes_of_str("type"),
        .app_id = bytes_of("a\0b\xff", 4),
        .cluster_id = bytes_of_str(""),
    };
    wire_properties_write(&p, out);
}

/* Only headers. */
static inline void sample_put_headers_only(struct buf *out, struct bytes headers)
{
    struct wire_properties p = {.flags = WIRE_HEADERS, .headers = headers};
    wire_properties_write(&p, out);
}

#endif
