/* Publishing numbered messages with pipelined confirms; what is unconfirmed when a connection is lost goes
 * again. */
#include "core/base/buf.h"
#include "core/message/wire.h"
#include "tests/tools/load.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct publisher {
    const struct options *o;
    struct broker *b;
    struct arena arena;
    struct buf properties, headers;
    uint8_t *body;
    bool *confirmed;       /* by index 0..count-1 */
    int64_t *index_of_tag; /* ring of `window` */
    int64_t cursor, done, in_flight, first_open;
    uint64_t next_tag, reconnects, refused;
    int64_t began_ns, began_wall_ns, sent, deadline_ns;
};

static int64_t pick_delay_ms(const struct options *o, int64_t index)
{
    int64_t span = o->delay.max_ms - o->delay.min_ms + 1;
    return o->delay.min_ms + (index * INT64_C(7919)) % span; /* spread, out of order, the same in every run */
}

/* --relative is for the bare plugin, which knows no absolute time. */
static void put_due(struct publisher *p, int64_t due_ms, int64_t now_ms)
{
    if (p->o->relative)
        wire_put_int64(&p->headers, bytes_of_str("x-delay"), due_ms - now_ms);
    else
        wire_put_int64(&p->headers, bytes_of_str("x-postdate-at"), due_ms);
}

/* With --rate when its turn was: a publisher that is held up must not make what follows look punctual. */
static int64_t published_ns(const struct publisher *p)
{
    int64_t now = now_ns(CLOCK_REALTIME);
    if (p->o->rate <= 0)
        return now;
    int64_t turn_ns = p->began_wall_ns + (int64_t)((double)p->sent / (double)p->o->rate * 1e9);
    return turn_ns < now ? turn_ns : now;
}

static void fill_message(struct publisher *p, int64_t index)
{
    const struct options *o = p->o;
    struct body_head head = {.number = (uint64_t)(o->start + index), .published_ns = published_ns(p)};
    char id[32];
    int id_len = snprintf(id, sizeof id, "n-%" PRIu64, head.number);

    buf_reset(&p->headers);
    if (o->due_at_ms > 0) {
        head.due_ms = o->due_at_ms + (o->due_rate > 0 ? index * 1000 / o->due_rate : 0);
        put_due(p, head.due_ms, head.published_ns / NS_PER_MS);
    } else if (o->delay.given) {
        int64_t delay_ms = pick_delay_ms(o, index);
        head.due_ms = head.published_ns / NS_PER_MS + delay_ms;
        wire_put_int64(&p->headers, bytes_of_str("x-delay"), delay_ms);
    }
    if (o->target != NULL)
        wire_put_string(&p->headers, bytes_of_str("x-postdate-exchange"), bytes_of_str(o->target));
    char key[128];
    int key_len = snprintf(key, sizeof key, "%s%" PRIu64, o->key ? o->key : "", head.number);
    if (o->key != NULL)
        wire_put_string(&p->headers, bytes_of_str("x-postdate-key"), bytes_of(key, (size_t)key_len));
    if (o->on_conflict != NULL)
        wire_put_string(&p->headers, bytes_of_str("x-postdate-on-conflict"), bytes_of_str(o->on_conflict));
    struct wire_properties w = {
        .flags = WIRE_DELIVERY_MODE | WIRE_MESSAGE_ID | WIRE_HEADERS | WIRE_CONTENT_TYPE,
        .content_type = bytes_of_str("application/octet-stream"),
        .headers = buf_bytes(&p->headers),
        .delivery_mode = o->transient ? 1 : 2,
        .message_id = bytes_of(id, (size_t)id_len),
    };
    buf_reset(&p->properties);
    wire_properties_write(&w, &p->properties);
    memcpy(p->body, &head, sizeof head);
}

static void confirm_index(struct publisher *p, int64_t index, bool ack)
{
    if (index < 0)
        return;
    p->in_flight--;
    if (!ack) {
        p->refused++;
    } else if (!p->confirmed[index]) {
        p->confirmed[index] = true;
        p->done++;
    }
}

static void take_confirm(struct publisher *p, const struct broker_event *ev)
{
    uint64_t first = ev->multiple ? (uint64_t)p->first_open : ev->tag;
    for (uint64_t tag = first; tag <= ev->tag && tag < p->next_tag; tag++) {
        int64_t *slot = &p->index_of_tag[tag % (uint64_t)p->o->window];
        confirm_index(p, *slot, ev->kind == BROKER_EVENT_ACK);
        *slot = -1;
    }
    while ((uint64_t)p->first_open < p->next_tag &&
           p->index_of_tag[(uint64_t)p->first_open % (uint64_t)p->o->window] < 0)
        p->first_open++;
}

/* Reads confirms, waiting at most timeout_ms for the first one. */
static int drain_confirms(struct publisher *p, int timeout_ms)
{
    for (;;) {
        struct err e = {0};
        struct broker_event ev;
        arena_reset(&p->arena);
        if (broker_next_event(p->b, &p->arena, MESSAGE_MAX, timeout_ms, &ev, &e) != 0) {
            if (!p->o->retry)
                die("lost the connection", &e);
            return -1;
        }
        if (ev.kind == BROKER_EVENT_NONE)
            return 0;
        if (ev.kind == BROKER_EVENT_ACK || ev.kind == BROKER_EVENT_NACK)
            take_confirm(p, &ev);
        timeout_ms = 0;
    }
}

static void publisher_connect(struct publisher *p)
{
    struct err e = {0};
    for (;;) {
        p->b = connect_broker(p->o, "load publisher", p->deadline_ns);
        if (broker_confirm_select(p->b, &e) == 0)
            break;
        broker_drop(p->b);
        if (!p->o->retry || now_ns(CLOCK_MONOTONIC) > p->deadline_ns)
            die("confirm.select", &e);
    }
    p->next_tag = 1;
    p->first_open = 1;
    p->in_flight = 0;
    p->cursor = 0; /* everything unconfirmed goes again, under the same message-id */
    for (int64_t i = 0; i < p->o->window; i++)
        p->index_of_tag[i] = -1;
}

static int publish_one(struct publisher *p)
{
    struct err e = {0};
    uint64_t tag = 0;
    fill_message(p, p->cursor);
    const struct broker_message m = {.exchange = bytes_of_str(p->o->exchange),
                                     .routing_key = bytes_of_str(p->o->routing_key),
                                     .properties = buf_bytes(&p->properties),
                                     .body = bytes_of(p->body, (size_t)p->o->size)};
    if (broker_publish(p->b, &m, &tag, &e) != 0) {
        if (!p->o->retry)
            die("publish", &e);
        return -1;
    }
    p->index_of_tag[tag % (uint64_t)p->o->window] = p->cursor;
    p->next_tag = tag + 1;
    p->in_flight++;
    p->sent++;
    p->cursor++;
    return 0;
}

/* How long to wait before the next publish so that the rate is kept; 0 to send now. */
static int64_t pace_ns(const struct publisher *p)
{
    if (p->o->rate <= 0)
        return 0;
    double due_s = (double)p->sent / (double)p->o->rate;
    int64_t at_ns = p->began_ns + (int64_t)(due_s * 1e9);
    return at_ns - now_ns(CLOCK_MONOTONIC);
}

static int publisher_step(struct publisher *p)
{
    while (p->cursor < p->o->count && p->confirmed[p->cursor])
        p->cursor++;
    bool window_full = p->next_tag - (uint64_t)p->first_open >= (uint64_t)p->o->window;
    if (p->cursor >= p->o->count && p->in_flight == 0) {
        p->cursor = 0; /* some were refused: once more */
        return 0;
    }
    if (window_full || p->cursor >= p->o->count)
        return drain_confirms(p, 1000);
    int64_t wait_ns = pace_ns(p);
    if (wait_ns >= NS_PER_MS)
        return drain_confirms(p, (int)(wait_ns / NS_PER_MS));
    if (publish_one(p) != 0)
        return -1;
    return p->sent % 32 == 0 ? drain_confirms(p, 0) : 0;
}

struct published publish_all(const struct options *o)
{
    struct publisher publisher = {.o = o}, *p = &publisher;
    p->deadline_ns = now_ns(CLOCK_MONOTONIC) + o->timeout_s * NS_PER_S;
    arena_init(&p->arena, MESSAGE_MAX);
    buf_init(&p->properties, 4096);
    buf_init(&p->headers, 4096);
    p->body = must_alloc((size_t)o->size, 1);
    memset(p->body, 'x', (size_t)o->size);
    p->confirmed = must_alloc((size_t)o->count, sizeof *p->confirmed);
    p->index_of_tag = must_alloc((size_t)o->window, sizeof *p->index_of_tag);
    publisher_connect(p);
    p->began_ns = now_ns(CLOCK_MONOTONIC);
    p->began_wall_ns = now_ns(CLOCK_REALTIME);
    while (p->done < o->count) {
        if (now_ns(CLOCK_MONOTONIC) > p->deadline_ns)
            die("timed out before everything was confirmed", NULL);
        if (publisher_step(p) != 0) {
            broker_drop(p->b);
            p->reconnects++;
            publisher_connect(p);
        }
    }
    struct published result = {
        .sent = p->sent,
        .refused = p->refused,
        .reconnects = p->reconnects,
        .seconds = (double)(now_ns(CLOCK_MONOTONIC) - p->began_ns) / 1e9,
    };
    broker_close(p->b);
    arena_free(&p->arena);
    buf_free(&p->properties);
    buf_free(&p->headers);
    free(p->body);
    free(p->confirmed);
    free(p->index_of_tag);
    return result;
}
