#include "core/message/x_death.h"
#include "core/message/last_hop.h"
#include "core/message/message_id.h"
#include "core/message/ttl_ladder.h"
#include <string.h>

#define HEADER_ID "x-postdate-id"
#define HEADER_DUE "x-postdate-due"
#define HEADER_HOPS "x-postdate-hops"
#define HEADER_SINCE "x-postdate-hops-since"

/* One of several intake queues: "<intake queue>.2". */
static bool is_number(struct bytes text)
{
    bool is = text.len >= 1 && text.len <= 2 && text.data[0] != '0';
    for (size_t i = 0; is && i < text.len; i++)
        is = text.data[i] >= '0' && text.data[i] <= '9';
    return is;
}

/* The intake queue, one of those beside it, or the one for what has x-opt-delivery-time. */
static bool is_intake(struct bytes name, const char *queue)
{
    size_t len = strlen(queue);
    if (!bytes_start_with_str(name, queue))
        return false;
    struct bytes rest = bytes_of(name.data + len, name.len - len);
    return rest.len == 0 || bytes_equal_str(rest, ".timed") ||
           (rest.data[0] == '.' && is_number(bytes_of(rest.data + 1, rest.len - 1)));
}

static bool is_of_queue(const struct wire_field *death, const char *queue)
{
    struct bytes name;
    return death->kind == 'F' && wire_find_string(death->value, "queue", &name) && is_intake(name, queue);
}

/* Made by us: in the intake queue, or where the broker waits. */
static bool is_ours(struct bytes queue_name, const char *queue)
{
    return is_intake(queue_name, queue) || ttl_ladder_owns_queue(queue_name) ||
           last_hop_owns_queue(queue_name);
}

static bool is_our_death(const struct wire_field *death, const char *queue)
{
    struct bytes name;
    return death->kind == 'F' && wire_find_string(death->value, "queue", &name) && is_ours(name, queue);
}

static void read_death(struct bytes death, struct x_death *out)
{
    struct wire_field keys, key;
    out->found = true;
    out->has_exchange = wire_find_string(death, "exchange", &out->exchange);
    out->has_expiration = wire_find_string(death, "original-expiration", &out->expiration);
    if (!wire_find(death, "routing-keys", &keys) || keys.kind != 'A')
        return;
    struct wire_cursor c = wire_array(keys.value);
    if (wire_next(&c, &key) == 1 && key.kind == 'S') {
        out->has_routing_key = true;
        out->routing_key = key.value;
        out->cc = c.rest;
    }
}

void x_death_read(struct bytes headers, const char *queue, struct x_death *out)
{
    struct wire_field f, death;
    struct bytes name;
    *out = (struct x_death){0};
    out->strip_first = wire_find_string(headers, "x-first-death-queue", &name) && is_ours(name, queue);
    out->strip_last = wire_find_string(headers, "x-last-death-queue", &name) && is_ours(name, queue);
    if (!wire_find(headers, "x-death", &f) || f.kind != 'A')
        return;
    struct wire_cursor c = wire_array(f.value);
    while (!out->found && wire_next(&c, &death) == 1) { /* the newest comes first */
        if (is_of_queue(&death, queue))
            read_death(death.value, out);
    }
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
    struct wire_field death;
    size_t kept = 0, start = out->len;
    wire_put_array(out, x_death->name, (struct bytes){0});
    size_t items = out->len;
    while (wire_next(&c, &death) == 1) {
        if (!is_our_death(&death, queue)) {
            buf_put_bytes(out, death.entry);
            kept++;
        }
    }
    if (out->failed)
        return;
    if (kept == 0 && x_death->value.len > 0)
        out->len = start;
    else
        buf_set_u32(out, items - 4, (uint32_t)(out->len - items));
}

/* --- circles */

/* The queue of the newest entry that is not ours, nor of the ladder's; false: there is none. */
static bool newest_foreign_queue(struct bytes headers, const char *queue, struct bytes *out)
{
    struct wire_field f, death;
    if (!wire_find(headers, "x-death", &f) || f.kind != 'A')
        return false;
    struct wire_cursor c = wire_array(f.value);
    while (wire_next(&c, &death) == 1) {
        if (death.kind == 'F' && wire_find_string(death.value, "queue", out) && !is_ours(*out, queue))
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
                   "new delay (allowed: the dead-letter exchange postdate.retry, which brings it back to its "
                   "queue after a wait, or a client that publishes it again with a new x-delay)",
                   bytes_printable(queue, shown, sizeof(shown)));
}

static int refuse_circle(struct err *e)
{
    return err_set(e, ERR_REJECT,
                   "x-postdate-hops: the message came back more than %d times within a minute, each time "
                   "without a new delay: something that gets what Postdate delivers leads to Postdate again "
                   "(allowed: %d times; see the bindings of the delivery exchange, and `postdate doctor`)",
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
