#include "amqp/topology/topology_history.h"

#include "core/base/clock.h"
#include "core/base/names.h"
#include "core/message/wire.h"

#include <string.h>

#define READ_MS 1000 /* another gateway that starts has it for a moment */
#define DELIVERY_LIMIT_LASTING 2000000000
#define PERSISTENT 2

/* No limit of deliveries: each gateway that starts is one. What a policy says of a time is all that could
 * empty it; then a database that went back while no gateway ran is not noticed. */
int topology_declare_history(struct broker *b, struct err *e)
{
    if (broker_declare_queue(b, broker_names.history,
                             BROKER_ARGS(BROKER_TEXT("x-queue-type", "quorum"),
                                         BROKER_NUMBER("x-delivery-limit", DELIVERY_LIMIT_LASTING),
                                         BROKER_NUMBER("x-max-length", 1),
                                         BROKER_TEXT("x-overflow", "drop-head")),
                             e) == 0)
        return 0;
    if (e->kind != ERR_PERMISSION)
        return -1;
    err_clear(e); /* nothing that is delivered depends on it */
    return broker_reopen(b, e);
}

int topology_note_history(struct broker *b, const struct history_point *p, struct err *e)
{
    char text[HISTORY_TEXT_SIZE];
    struct buf properties;
    buf_init(&properties, 100);
    wire_properties_write(&(struct wire_properties){.flags = WIRE_DELIVERY_MODE, .delivery_mode = PERSISTENT},
                          &properties);
    struct bytes body = bytes_of_str(history_point_format(p, text));
    int rc = broker_publish_to_queue(b, broker_names.history, &properties, body, NULL, e);
    buf_free(&properties);
    return rc != 0 ? -1 : broker_flush(b, e);
}

/* 1: it came, and its tag is to be given back; 0: it did not. */
static int await_point(struct broker *b, uint64_t *tag, struct history_point *out, struct err *e)
{
    struct broker_event ev = {0};
    struct arena arena;
    const int64_t until_ms = clock_monotonic_ms() + READ_MS;
    int rc = 0;
    arena_init(&arena, 1 << 16);
    while (rc == 0) {
        int64_t left_ms = until_ms - clock_monotonic_ms();
        arena_reset(&arena);
        if (left_ms <= 0)
            break;
        if (broker_next_event(b, &arena, HISTORY_TEXT_SIZE, (int)left_ms, &ev, e) != 0)
            rc = -1;
        else if (ev.kind == BROKER_EVENT_DELIVERY)
            rc = 1;
    }
    if (rc > 0) {
        *tag = ev.tag;
        history_point_read(ev.body, out); /* what is none, somebody else put there */
    }
    arena_free(&arena);
    return rc;
}

/* 1: this login may not, or the queue could not be declared. */
static int may_not_read(struct broker *b, struct err *why, struct err *e)
{
    if (e->kind != ERR_PERMISSION && e->kind != ERR_NOT_FOUND)
        return -1;
    *why = *e;
    err_clear(e);
    return broker_reopen(b, e) != 0 ? -1 : 1;
}

int topology_read_history(struct broker *b, struct history_point *out, struct err *why, struct err *e)
{
    const char *queue = broker_names.history;
    uint32_t ready, consumers;
    uint64_t tag = 0;
    *out = (struct history_point){0};
    if (broker_look_at_queue(b, queue, &ready, &consumers, e) != 0)
        return may_not_read(b, why, e);
    if (ready == 0 && consumers == 0)
        return 0;
    if (broker_consume(b, queue, queue, 1, e) != 0)
        return may_not_read(b, why, e);
    int found = await_point(b, &tag, out, e);
    if (found < 0 || broker_cancel_consume(b, queue, e) != 0)
        return -1;
    return found ? broker_reject(b, tag, true, e) : 0;
}
