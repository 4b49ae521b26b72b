#include "core/message/x_death.h"
#include "core/message/last_hop.h"
#include "core/message/ttl_ladder.h"

static bool is_of_queue(const struct wire_field *death, const char *queue)
{
    struct bytes name;
    return death->kind == 'F' && wire_find_string(death->value, "queue", &name) &&
           bytes_equal_str(name, queue);
}

/* Made by us: in the intake queue, or where the broker waits. */
static bool is_ours(struct bytes queue_name, const char *queue)
{
    return bytes_equal_str(queue_name, queue) || ttl_ladder_owns_queue(queue_name) ||
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
