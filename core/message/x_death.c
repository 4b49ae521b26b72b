#include "core/message/x_death.h"
#include "core/base/names.h"
#include "core/message/headers.h"
#include "core/message/message_id.h"
#include "core/message/publish_headers.h"
#include "core/message/ttl_ladder.h"
#include <string.h>

#define HEADER_HOPS "x-postdate-hops"
#define HEADER_SINCE "x-postdate-hops-since"

struct wire_cursor death_list(struct bytes headers)
{
    struct wire_field f;
    bool there = wire_find(headers, "x-death", &f) && f.kind == 'A';
    return wire_array(there ? f.value : (struct bytes){0});
}

bool death_read(const struct wire_field *entry, struct death *out)
{
    struct wire_field keys, key;
    *out = (struct death){0};
    if (entry->kind != 'F' || !wire_find_string(entry->value, "queue", &out->queue))
        return false;
    wire_find_string(entry->value, "reason", &out->reason);
    wire_find_string(entry->value, "exchange", &out->exchange);
    wire_find_string(entry->value, "original-expiration", &out->expiration);
    if (!wire_find(entry->value, "routing-keys", &keys) || keys.kind != 'A')
        return true;
    struct wire_cursor c = wire_array(keys.value);
    if (wire_next(&c, &key) == 1 && key.kind == 'S') {
        out->routing_key = key.value;
        out->cc = c.rest;
    }
    return true;
}

/* The intake queue, a further intake queue ("<intake queue>.2"), the queue for x-opt-delivery-time, or that
 * of the exchange type. */
static bool is_intake(struct bytes name, const char *queue)
{
    size_t len = strlen(queue);
    if (bytes_equal_str(name, broker_names.intake_delayed))
        return true;
    if (!bytes_start_with_str(name, queue))
        return false;
    struct bytes rest = bytes_of(name.data + len, name.len - len);
    if (rest.len == 0 || bytes_equal_str(rest, ".timed"))
        return true;
    bool is_number = rest.len >= 2 && rest.len <= 3 && rest.data[0] == '.' && rest.data[1] != '0';
    for (size_t i = 1; is_number && i < rest.len; i++)
        is_number = rest.data[i] >= '0' && rest.data[i] <= '9';
    return is_number;
}

/* Added by Postdate's queues: the intake, or the ladder. */
static bool is_ours(struct bytes queue_name, const char *queue)
{
    return is_intake(queue_name, queue) || ttl_ladder_owns_queue(queue_name) ||
           last_hop_owns_queue(queue_name);
}

static bool names_ours(struct bytes headers, const char *header, const char *queue)
{
    struct bytes name;
    return wire_find_string(headers, header, &name) && is_ours(name, queue);
}

void x_death_read(struct bytes headers, const char *queue, struct x_death *out)
{
    struct wire_field entry;
    struct wire_cursor c = death_list(headers);
    *out = (struct x_death){.strip_first = names_ours(headers, "x-first-death-queue", queue),
                            .strip_last = names_ours(headers, "x-last-death-queue", queue)};
    while (!out->found && wire_next(&c, &entry) == 1) /* the newest comes first */
        out->found = death_read(&entry, &out->death) && is_intake(out->death.queue, queue);
}

bool x_death_drops(const struct x_death *d, struct bytes name)
{
    return (d->strip_first && bytes_start_with_str(name, "x-first-death-")) ||
           (d->strip_last && bytes_start_with_str(name, "x-last-death-"));
}

void x_death_put_rest(const struct wire_field *x_death, const char *queue, struct buf *out)
{
    if (x_death->kind != 'A') {
        buf_put_bytes(out, x_death->entry);
        return;
    }
    struct wire_cursor c = wire_array(x_death->value);
    struct wire_field entry;
    struct death death;
    size_t start = out->len;
    wire_put_name(out, x_death->name);
    size_t items = wire_begin(out, 'A');
    while (wire_next(&c, &entry) == 1)
        if (!death_read(&entry, &death) || !is_ours(death.queue, queue))
            buf_put_bytes(out, entry.entry);
    if (!out->failed && out->len == items && x_death->value.len > 0)
        out->len = start;
    else
        wire_end(out, items);
}

/* --- circles */

/* The queue of the newest entry that is not ours, nor of the ladder's; false: there is none. */
static bool newest_foreign_queue(struct bytes headers, const char *queue, struct bytes *out)
{
    struct wire_cursor c = death_list(headers);
    struct wire_field entry;
    struct death death;
    while (wire_next(&c, &entry) == 1) {
        *out = death_read(&entry, &death) ? death.queue : (struct bytes){0};
        if (out->data && !is_ours(*out, queue))
            return true;
    }
    return false;
}

static bool find_int(struct bytes headers, const char *name, int64_t *out)
{
    struct wire_field f;
    return wire_find(headers, name, &f) && wire_field_int(&f, out) && *out > 0;
}

/* Was it delivered by Postdate before? And when was it due then? */
static bool was_delivered(struct bytes headers, int64_t *due_ms)
{
    struct message_id id;
    struct bytes text;
    return wire_find_string(headers, HEADER_ID, &text) && message_id_parse(text, &id) &&
           message_id_is_ours(id) && find_int(headers, HEADER_DUE, due_ms);
}

static int refuse_dead_letter(struct bytes queue, struct err *e)
{
    char shown[120];
    return err_set(e, ERR_REJECT,
                   "x-death: queue \"%s\" dead-lettered a message that Postdate had delivered, and it has no "
                   "new delay (allowed: the dead-letter exchange %s, which returns it to its queue after a "
                   "delay, or a client that publishes it again with a new x-delay)",
                   bytes_printable(queue, shown, sizeof(shown)), broker_names.retry);
}

static int refuse_circle(struct err *e)
{
    return err_set(
        e, ERR_REJECT,
        "x-postdate-hops: the message came back more than %d times within a minute, each time without a new "
        "delay: a queue or exchange to which Postdate delivers routes back to Postdate (allowed: %d times; "
        "see the bindings of the delivery exchange, and `postdate doctor`)",
        CIRCLE_TIMES_MAX, CIRCLE_TIMES_MAX);
}

int circle_read(struct bytes headers, bool later, const char *intake_queue, struct circle *out, struct err *e)
{
    int64_t due_ms, times, since_ms;
    struct bytes queue;
    *out = (struct circle){0};
    if (later || !was_delivered(headers, &due_ms))
        return 0;
    if (newest_foreign_queue(headers, intake_queue, &queue))
        return refuse_dead_letter(queue, e);
    *out = (struct circle){.times = 1, .since_ms = due_ms};
    if (!find_int(headers, HEADER_HOPS, &times) || !find_int(headers, HEADER_SINCE, &since_ms) ||
        since_ms > due_ms || due_ms - since_ms > CIRCLE_WITHIN_MS)
        return 0;
    if (times >= CIRCLE_TIMES_MAX)
        return refuse_circle(e);
    *out = (struct circle){.times = times + 1, .since_ms = since_ms};
    return 0;
}

void circle_put(const struct circle *c, struct buf *out)
{
    if (c->times == 0)
        return;
    wire_put_int64(out, bytes_of_str(HEADER_HOPS), c->times);
    wire_put_int64(out, bytes_of_str(HEADER_SINCE), c->since_ms);
}
