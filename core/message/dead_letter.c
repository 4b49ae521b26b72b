#include "core/message/dead_letter.h"

#include "core/base/hash.h"
#include "core/base/names.h"
#include "core/message/delay.h"
#include "core/message/last_hop.h"
#include "core/message/request_headers.h"
#include "core/message/reserved.h"

#include <string.h>

#define HEADER_ID "x-postdate-id"
#define HEADER_ATTEMPT "x-postdate-attempt"
#define HEADER_COPY "x-postdate-copy"
#define HEADER_USER_ID "x-postdate-user-id"
#define HEADER_RETRY_COUNT "retry-count"

enum { ADDED_MAX = 1024 };

/* The newest entry of x-death, a table; an empty view where there is none. */
static struct bytes newest_death(struct bytes headers)
{
    struct wire_field f, death;
    if (!wire_find(headers, "x-death", &f) || f.kind != 'A')
        return (struct bytes){0};
    struct wire_cursor c = wire_array(f.value);
    return wire_next(&c, &death) == 1 && death.kind == 'F' ? death.value : (struct bytes){0};
}

/* The exchange that it was published to. What RabbitMQ itself let go came by way of postdate.last. */
static int read_exchange(struct bytes death, struct bytes properties, struct dead_letter *out, struct err *e)
{
    wire_find_string(death, "exchange", &out->exchange);
    if (bytes_equal_str(out->exchange, broker_names.last)) {
        struct bytes exchange = last_hop_exchange(properties);
        out->exchange = exchange.len > 0 ? exchange : out->exchange;
    }
    if (out->exchange.len > MESSAGE_NAME_MAX || !bytes_is_text(out->exchange))
        return err_set(e, ERR_REJECT,
                       "x-death: the exchange can't be kept (allowed: at most 255 bytes of UTF-8)");
    return 0;
}

static int read_death(struct bytes death, struct dead_letter *out, struct err *e)
{
    struct bytes reason;
    struct wire_field keys, key;
    char shown[80];
    if (!wire_find_string(death, "queue", &out->queue) || !wire_find_string(death, "reason", &reason) ||
        !bytes_is_text(out->queue) || out->queue.len > MESSAGE_NAME_MAX)
        return err_set(e, ERR_REJECT, "x-death: it does not tell which queue gave the message up, and why");
    out->reason = death_reason_parse(reason);
    if (out->reason == 0)
        return err_set(e, ERR_REJECT,
                       "x-death: the reason \"%s\" is unknown (allowed: rejected, delivery_limit, expired, "
                       "maxlen)",
                       bytes_printable(reason, shown, sizeof shown));
    if (!wire_find(death, "routing-keys", &keys) || keys.kind != 'A')
        return 0;
    /* A dead-letter routing key of the queue's has replaced the one of the delivery. */
    struct wire_cursor c = wire_array(keys.value);
    if (wire_next(&c, &key) == 1 && key.kind == 'S') {
        out->routing_key = key.value;
        out->cc = c.rest;
    }
    return 0;
}

/* What RabbitMQ or we add or take off, which differs from one delivery of a message to the next. */
static bool is_added(struct bytes name)
{
    return request_headers_is_of_delivery(name) || bytes_start_with_str(name, "x-death") ||
           bytes_start_with_str(name, "x-first-death-") || bytes_start_with_str(name, "x-last-death-") ||
           bytes_equal_str(name, HEADER_ID) || bytes_equal_str(name, HEADER_ATTEMPT) ||
           bytes_equal_str(name, HEADER_COPY) || bytes_equal_str(name, RETURN_HEADER_QUEUE) ||
           bytes_equal_str(name, HEADER_USER_ID) || bytes_equal_str(name, HEADER_RETRY_COUNT) ||
           bytes_equal_str(name, DELIVERY_TIME_HEADER);
}

static int hash_content(const struct accept_input *in, struct dead_letter *d, struct err *e)
{
    uint8_t sum[SHA256_SIZE];
    struct wire_properties p = d->properties;
    struct wire_cursor c = wire_table(p.headers);
    struct wire_field f;
    struct buf headers, all;
    buf_init(&headers, p.headers.len + 1);
    buf_init(&all, in->properties.len + d->routing_key.len + ADDED_MAX);
    while (wire_next(&c, &f) == 1)
        if (!is_added(f.name))
            buf_put_bytes(&headers, f.entry);
    p.headers = buf_bytes(&headers);
    p.flags &= (uint16_t) ~(WIRE_HEADERS | WIRE_EXPIRATION | WIRE_USER_ID);
    wire_properties_write(&p, &all);
    buf_put_bytes(&all, p.headers);
    buf_put_u8(&all, 0);
    buf_put_bytes(&all, d->routing_key);
    bool failed = !sha256(in->body, sum);
    buf_put(&all, sum, sizeof sum);
    failed = failed || headers.failed || all.failed || !sha256(buf_bytes(&all), sum);
    memcpy(d->hash, sum, sizeof d->hash);
    buf_free(&headers);
    buf_free(&all);
    return failed ? err_set(e, ERR_BUG, "out of memory") : 0;
}

static void read_lineage(struct dead_letter *d)
{
    struct bytes headers = d->properties.headers, text, queue;
    struct wire_field f;
    int64_t attempt = 0;
    d->has_lineage = wire_find_string(headers, HEADER_ID, &text) && message_id_parse(text, &d->id);
    d->lineage = d->id;
    d->attempt = 1;
    /* Without our mark for this queue the message is new to it, whatever a publisher wrote. */
    if (!d->has_lineage || !wire_find_string(headers, RETURN_HEADER_QUEUE, &queue) ||
        !bytes_equal(queue, d->queue))
        return;
    if (wire_find(headers, HEADER_ATTEMPT, &f) && wire_field_int(&f, &attempt) && attempt > 1 &&
        attempt <= RETRY_ATTEMPTS_MAX)
        d->attempt = (int)attempt;
    if (wire_find_string(headers, HEADER_COPY, &text))
        message_id_parse(text, &d->lineage);
}

/* RabbitMQ delivers the same bytes again, so the newest entry of x-death is the same, with its time. */
static int name_refusal(struct dead_letter *d, struct err *e)
{
    struct bytes death = newest_death(d->properties.headers);
    uint8_t sums[SHA256_SIZE + DEAD_LETTER_HASH_SIZE + sizeof d->lineage + 2], all[SHA256_SIZE];
    uint8_t *at = sums;
    bool failed = !sha256(death, at);
    at += SHA256_SIZE;
    memcpy(at, d->hash, sizeof d->hash);
    at += sizeof d->hash;
    memcpy(at, d->lineage.b, sizeof d->lineage);
    at += sizeof d->lineage;
    *at++ = (uint8_t)(d->attempt >> 8);
    *at++ = (uint8_t)d->attempt;
    if (failed || !sha256(bytes_of(sums, sizeof sums), all))
        return err_set(e, ERR_BUG, "out of memory");
    d->refusal = dead_letter_random_lineage(all);
    return 0;
}

int dead_letter_read(const struct accept_input *in, struct dead_letter *out, struct err *e)
{
    *out = (struct dead_letter){.routing_key = in->routing_key};
    if (!bytes_equal_str(in->exchange, broker_names.retry))
        return err_set(
            e, ERR_REJECT,
            "published to the queue of dead letters (allowed: only what a queue dead-letters to the "
            "exchange %s)",
            broker_names.retry);
    if (wire_properties_read(in->properties, &out->properties, e) != 0 ||
        reserved_check_properties(in->properties, e) != 0)
        return -1;
    struct bytes death = newest_death(out->properties.headers);
    if (death.len == 0)
        return err_set(e, ERR_REJECT, "x-death: there is none, so the queue that gave it up is unknown");
    if (read_death(death, out, e) != 0 || read_exchange(death, in->properties, out, e) != 0)
        return -1;
    if (out->routing_key.len > MESSAGE_NAME_MAX || !bytes_is_text(out->routing_key))
        return err_set(e, ERR_REJECT, "routing key: it can't be kept (allowed: at most 255 bytes of UTF-8)");
    read_lineage(out);
    out->is_named = out->has_lineage || out->properties.message_id.len > 0;
    return hash_content(in, out, e) != 0 ? -1 : name_refusal(out, e);
}

/* One entry, with its count set. */
static void put_counted(struct buf *out, struct bytes death, int failed)
{
    struct wire_cursor c = wire_table(death);
    struct wire_field f;
    while (wire_next(&c, &f) == 1)
        if (!bytes_equal_str(f.name, "count"))
            buf_put_bytes(out, f.entry);
    buf_put_u8(out, sizeof "count" - 1);
    buf_put_str(out, "count");
    buf_put_u8(out, 'l');
    buf_put_u64(out, (uint64_t)failed);
}

/* x-death with the newest entry's count; failed 0: without it. */
static void put_deaths(struct buf *out, const struct wire_field *x_death, int failed)
{
    struct wire_cursor c = wire_array(x_death->value);
    struct wire_field death;
    struct buf items, one;
    buf_init(&items, x_death->value.len + ADDED_MAX);
    buf_init(&one, x_death->value.len + ADDED_MAX);
    for (bool newest = true; wire_next(&c, &death) == 1; newest = false) {
        if (!newest) {
            buf_put_bytes(&items, death.entry);
        } else if (failed > 0) {
            put_counted(&one, death.value, failed);
            wire_put_item(&items, 'F', buf_bytes(&one));
        }
    }
    if (items.len > 0)
        wire_put_array(out, x_death->name, buf_bytes(&items));
    out->failed = out->failed || items.failed || one.failed;
    buf_free(&items);
    buf_free(&one);
}

static void put_names(struct buf *out, const struct dead_letter *d, struct message_id lineage, int attempt)
{
    char id[MESSAGE_ID_TEXT_SIZE];
    wire_put_string(out, bytes_of_str(HEADER_ID), bytes_of_str(message_id_format(d->id, id)));
    wire_put_int64(out, bytes_of_str(HEADER_ATTEMPT), attempt);
    wire_put_string(out, bytes_of_str(RETURN_HEADER_QUEUE), d->queue);
    if (!message_id_equal(lineage, d->id))
        wire_put_string(out, bytes_of_str(HEADER_COPY), bytes_of_str(message_id_format(lineage, id)));
}

static void put_headers(struct buf *out, const struct dead_letter *d, struct message_id lineage, int attempt)
{
    struct wire_cursor c = wire_table(d->properties.headers);
    struct wire_field f;
    bool moves_user = d->properties.user_id.len > 0;
    while (wire_next(&c, &f) == 1) {
        if (request_headers_is_of_delivery(f.name) || bytes_equal_str(f.name, HEADER_ID) ||
            bytes_equal_str(f.name, HEADER_ATTEMPT) || bytes_equal_str(f.name, HEADER_COPY) ||
            bytes_equal_str(f.name, RETURN_HEADER_QUEUE) ||
            bytes_equal_str(f.name, DELIVERY_TIME_HEADER) || /* it was for the first delivery */
            (moves_user && bytes_equal_str(f.name, HEADER_USER_ID)))
            continue;
        if (bytes_equal_str(f.name, "x-death") && f.kind == 'A')
            put_deaths(out, &f, attempt - 1);
        else if (bytes_equal_str(f.name, HEADER_RETRY_COUNT))
            wire_put_int64(out, f.name, attempt - 1);
        else
            buf_put_bytes(out, f.entry);
    }
    if (d->cc.len > 0 && !wire_has(d->properties.headers, bytes_of_str("CC")))
        wire_put_array(out, bytes_of_str("CC"), d->cc);
    if (moves_user)
        wire_put_string(out, bytes_of_str(HEADER_USER_ID), d->properties.user_id);
    put_names(out, d, lineage, attempt);
}

int dead_letter_return(const struct dead_letter *d, struct message_id lineage, int attempt,
                       struct arena *arena, struct bytes *out, struct err *e)
{
    struct wire_properties p = d->properties;
    struct buf raw;
    buf_init(&raw, 2 * p.headers.len + 16 * ADDED_MAX); /* CC can be there once more, from x-death */
    p.flags |= WIRE_HEADERS;
    p.flags &= (uint16_t)~WIRE_USER_ID;
    if (!(p.flags & WIRE_EXPIRATION) &&
        wire_find_string(newest_death(d->properties.headers), "original-expiration", &p.expiration) &&
        p.expiration.len <= MESSAGE_NAME_MAX)
        p.flags |= WIRE_EXPIRATION;
    size_t headers = wire_properties_begin(&p, &raw);
    put_headers(&raw, d, lineage, attempt);
    wire_properties_end(&p, headers, &raw);
    *out = (struct bytes){0};
    if (!raw.failed)
        *out = arena_copy(arena, buf_bytes(&raw));
    buf_free(&raw);
    return out->data ? 0 : err_set(e, ERR_BUG, "out of memory while encoding headers");
}

struct message_id dead_letter_random_lineage(const uint8_t random[16])
{
    struct message_id id;
    memcpy(id.b, random, sizeof id.b);
    id.b[6] = (uint8_t)((id.b[6] & 0x0f) | 0x40); /* version 4, RFC 9562: not one of ours, which begin with a
                                                     due time */
    id.b[8] = (uint8_t)((id.b[8] & 0x3f) | 0x80);
    return id;
}

/* What a return is known by: views; empty ones for what it lacks. */
struct return_names {
    struct bytes id, copy, queue;
};

static bool read_return(struct bytes properties, struct return_names *out)
{
    struct wire_properties p;
    *out = (struct return_names){0};
    if (wire_properties_read(properties, &p, NULL) != 0)
        return false;
    wire_find_string(p.headers, HEADER_COPY, &out->copy);
    return wire_find_string(p.headers, HEADER_ID, &out->id) &&
           wire_find_string(p.headers, RETURN_HEADER_QUEUE, &out->queue);
}

struct bytes dead_letter_return_queue(const struct message *m)
{
    struct return_names n;
    if (!bytes_equal_str(m->exchange, RETURN_EXCHANGE) || !read_return(m->properties, &n))
        return (struct bytes){0};
    return n.queue;
}

struct bytes dead_letter_return_id(const struct message *m)
{
    struct return_names n;
    if (!bytes_equal_str(m->exchange, RETURN_EXCHANGE) || !read_return(m->properties, &n))
        return (struct bytes){0};
    return n.id;
}

bool dead_letter_is_same_return(struct bytes a, struct bytes b)
{
    struct return_names x, y;
    return read_return(a, &x) && read_return(b, &y) && bytes_equal(x.id, y.id) &&
           bytes_equal(x.copy, y.copy) && bytes_equal(x.queue, y.queue);
}

int dead_letter_anew(struct bytes properties, struct arena *arena, struct bytes *out, struct err *e)
{
    struct dead_letter d = {0};
    if (wire_properties_read(properties, &d.properties, e) != 0)
        return -1;
    wire_find_string(d.properties.headers, RETURN_HEADER_QUEUE, &d.queue);
    read_lineage(&d);
    return dead_letter_return(&d, d.lineage, 1, arena, out, e);
}
