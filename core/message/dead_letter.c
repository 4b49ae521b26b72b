#include "core/message/dead_letter.h"

#include "core/base/hash.h"
#include "core/base/names.h"
#include "core/message/delay.h"
#include "core/message/headers.h"
#include "core/message/publish_headers.h"
#include "core/message/reserved.h"
#include "core/message/x_death.h"

#include <string.h>

#define HEADER_ATTEMPT "x-postdate-attempt"
#define HEADER_COPY "x-postdate-copy"
#define HEADER_RETRY_COUNT "retry-count"

enum { ADDED_MAX = 1024 };

/* Written anew with each return. x-opt-delivery-time was for the first delivery. */
static const char *const renewed[] = {HEADER_ID,           HEADER_ATTEMPT,       HEADER_COPY,
                                      RETURN_HEADER_QUEUE, DELIVERY_TIME_HEADER, NULL};

/* The newest entry of x-death; false where there is none. */
static bool newest_death(struct bytes headers, struct wire_field *entry)
{
    struct wire_cursor c = death_list(headers);
    return wire_next(&c, entry) == 1 && entry->kind == 'F' && entry->value.len > 0;
}

static int check_name(struct bytes name, const char *what, struct err *e)
{
    if (name.len <= MESSAGE_NAME_MAX && bytes_is_text(name))
        return 0;
    return err_set(e, ERR_REJECT, "%s cannot be stored (allowed: at most 255 bytes of UTF-8)", what);
}

static int read_death(const struct accept_input *in, const struct death *death, struct dead_letter *out,
                      struct err *e)
{
    char shown[80];
    if (!death->queue.data || !death->reason.data || !bytes_is_text(death->queue) ||
        death->queue.len > MESSAGE_NAME_MAX)
        return err_set(
            e, ERR_REJECT,
            "x-death: it does not contain the queue that dead-lettered the message, and the reason");
    out->queue = death->queue;
    out->reason = death_reason_parse(death->reason);
    if (out->reason == 0)
        return err_set(e, ERR_REJECT,
                       "x-death: the reason \"%s\" is unknown (allowed: rejected, delivery_limit, expired, "
                       "maxlen)",
                       bytes_printable(death->reason, shown, sizeof shown));
    if (death->routing_key
            .data) { /* a dead-letter routing key of the queue's has replaced the one of the delivery */
        out->routing_key = death->routing_key;
        out->cc = death->cc;
    }
    /* The exchange that it was published to. Messages delivered by RabbitMQ itself were routed through
     * postdate.last. */
    out->exchange = death->exchange;
    if (bytes_equal_str(out->exchange, broker_names.last)) {
        struct bytes exchange = last_hop_exchange(in->properties);
        out->exchange = exchange.len > 0 ? exchange : out->exchange;
    }
    return check_name(out->exchange, "x-death: the exchange", e) ||
                   check_name(out->routing_key, "routing key: it", e)
               ? -1
               : 0;
}

/* Headers that RabbitMQ or Postdate adds or removes, which differ between deliveries of one message. */
static bool is_added(struct bytes name)
{
    static const char *const more[] = {HEADER_USER_ID, HEADER_RETRY_COUNT, NULL};
    return headers_is_of_delivery(name) || bytes_start_with_str(name, "x-death") ||
           bytes_start_with_str(name, "x-first-death-") || bytes_start_with_str(name, "x-last-death-") ||
           bytes_find_word(name, renewed) >= 0 || bytes_find_word(name, more) >= 0;
}

static int hash_content(const struct accept_input *in, struct dead_letter *d, struct err *e)
{
    uint8_t sum[SHA256_SIZE];
    struct wire_properties p = d->properties;
    struct wire_cursor c = wire_table(p.headers);
    struct wire_field f;
    struct buf all;
    buf_init(&all, in->properties.len + d->routing_key.len + ADDED_MAX);
    p.flags &= (uint16_t) ~(WIRE_HEADERS | WIRE_EXPIRATION | WIRE_USER_ID);
    wire_properties_write(&p, &all);
    while (wire_next(&c, &f) == 1)
        if (!is_added(f.name))
            buf_put_bytes(&all, f.entry);
    buf_put_u8(&all, 0);
    buf_put_bytes(&all, d->routing_key);
    bool failed = !sha256(in->body, sum);
    buf_put(&all, sum, sizeof sum);
    failed = failed || all.failed || !sha256(buf_bytes(&all), sum);
    memcpy(d->hash, sum, sizeof d->hash);
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
static int name_refusal(struct dead_letter *d, struct bytes death, struct err *e)
{
    uint8_t sum[SHA256_SIZE];
    struct buf all;
    buf_init(&all, ADDED_MAX);
    bool failed = !sha256(death, sum);
    buf_put(&all, sum, sizeof sum);
    buf_put(&all, d->hash, sizeof d->hash);
    buf_put(&all, d->lineage.b, sizeof d->lineage);
    buf_put_u16(&all, (uint16_t)d->attempt);
    failed = failed || all.failed || !sha256(buf_bytes(&all), sum);
    buf_free(&all);
    d->refusal = dead_letter_random_lineage(sum);
    return failed ? err_set(e, ERR_BUG, "out of memory") : 0;
}

int dead_letter_read(const struct accept_input *in, struct dead_letter *out, struct err *e)
{
    struct wire_field entry;
    struct death death;
    *out = (struct dead_letter){.routing_key = in->routing_key};
    if (!bytes_equal_str(in->exchange, broker_names.retry))
        return err_set(e, ERR_REJECT,
                       "published to the queue of dead letters (allowed: only messages that a queue "
                       "dead-letters to the exchange %s)",
                       broker_names.retry);
    if (wire_properties_read(in->properties, &out->properties, e) != 0 ||
        reserved_check_properties(in->properties, e) != 0)
        return -1;
    if (!newest_death(out->properties.headers, &entry))
        return err_set(e, ERR_REJECT,
                       "x-death: it is missing, so the queue that dead-lettered the message is unknown");
    death_read(&entry, &death);
    if (read_death(in, &death, out, e) != 0)
        return -1;
    read_lineage(out);
    out->is_named = out->has_lineage || out->properties.message_id.len > 0;
    return hash_content(in, out, e) != 0 ? -1 : name_refusal(out, entry.value, e);
}

/* x-death with the newest entry's count; failed 0: without it. */
static void put_deaths(struct buf *out, const struct wire_field *x_death, int failed)
{
    struct wire_cursor c = wire_array(x_death->value);
    struct wire_field death, f;
    size_t start = out->len;
    wire_put_name(out, x_death->name);
    size_t items = wire_begin(out, 'A');
    for (bool newest = true; wire_next(&c, &death) == 1; newest = false) {
        if (!newest) {
            buf_put_bytes(out, death.entry);
        } else if (failed > 0) {
            struct wire_cursor fields = wire_table(death.value);
            size_t table = wire_begin(out, 'F');
            while (wire_next(&fields, &f) == 1)
                if (!bytes_equal_str(f.name, "count"))
                    buf_put_bytes(out, f.entry);
            wire_put_long(out, bytes_of_str("count"), failed);
            wire_end(out, table);
        }
    }
    if (!out->failed && out->len == items)
        out->len = start;
    else
        wire_end(out, items);
}

static void put_headers(struct buf *out, const struct dead_letter *d, struct message_id lineage, int attempt)
{
    struct wire_cursor c = wire_table(d->properties.headers);
    struct wire_field f;
    bool moves_user = d->properties.user_id.len > 0;
    while (wire_next(&c, &f) == 1) {
        if (headers_is_of_delivery(f.name) || bytes_find_word(f.name, renewed) >= 0 ||
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
        wire_put_field(out, bytes_of_str("CC"), 'A', d->cc);
    if (moves_user)
        wire_put_string(out, bytes_of_str(HEADER_USER_ID), d->properties.user_id);
    char id[MESSAGE_ID_TEXT_SIZE];
    wire_put_string(out, bytes_of_str(HEADER_ID), bytes_of_str(message_id_format(d->id, id)));
    wire_put_int64(out, bytes_of_str(HEADER_ATTEMPT), attempt);
    wire_put_string(out, bytes_of_str(RETURN_HEADER_QUEUE), d->queue);
    if (!message_id_equal(lineage, d->id))
        wire_put_string(out, bytes_of_str(HEADER_COPY), bytes_of_str(message_id_format(lineage, id)));
}

int dead_letter_return(const struct dead_letter *d, struct message_id lineage, int attempt,
                       struct arena *arena, struct bytes *out, struct err *e)
{
    struct wire_properties p = d->properties;
    struct wire_field entry;
    struct death death;
    struct buf raw;
    buf_init(&raw, 2 * p.headers.len + 16 * ADDED_MAX); /* CC can be there once more, from x-death */
    p.flags |= WIRE_HEADERS;
    p.flags &= (uint16_t)~WIRE_USER_ID;
    if (!(p.flags & WIRE_EXPIRATION) && newest_death(d->properties.headers, &entry) &&
        death_read(&entry, &death) && death.expiration.data && death.expiration.len <= MESSAGE_NAME_MAX) {
        p.expiration = death.expiration;
        p.flags |= WIRE_EXPIRATION;
    }
    size_t headers = wire_properties_begin(&p, &raw);
    put_headers(&raw, d, lineage, attempt);
    return wire_properties_move(&p, headers, &raw, arena, out, e);
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

/* The values that identify a return: views; empty if missing. */
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

struct dead_letter_address dead_letter_address_of(const struct message *m)
{
    struct return_names n;
    if (!bytes_equal_str(m->exchange, RETURN_EXCHANGE) || !read_return(m->properties, &n))
        return (struct dead_letter_address){0};
    return (struct dead_letter_address){.queue = n.queue, .id = n.id};
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
