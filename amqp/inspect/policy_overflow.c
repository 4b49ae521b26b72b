#include "amqp/inspect/policy_probe.h"

#include "core/base/clock.h"
#include "core/base/random.h"
#include "core/message/wire.h"
#include <inttypes.h>
#include <stdio.h>

#define TRIES 8 /* a quorum queue notices after one or two too many that it is full */
#define CONFIRM_MS 2000
#define UNUSED_MS 60000 /* then a dead program's queue goes */

/* 1: taken; 0: refused. */
static int offer(struct broker *b, const char *queue, struct arena *arena, struct err *e)
{
    struct buf raw;
    struct broker_event ev = {.kind = BROKER_EVENT_NONE};
    int64_t end_ms = clock_monotonic_ms() + CONFIRM_MS;
    buf_init(&raw, 64);
    wire_properties_write(&(struct wire_properties){.flags = WIRE_DELIVERY_MODE, .delivery_mode = 1}, &raw);
    int rc = broker_publish(b,
                            &(struct broker_message){.routing_key = bytes_of_str(queue),
                                                     .properties = buf_bytes(&raw),
                                                     .body = bytes_of_str("x")},
                            NULL, e);
    buf_free(&raw);
    while (rc == 0 && ev.kind != BROKER_EVENT_ACK && ev.kind != BROKER_EVENT_NACK) {
        if (clock_monotonic_ms() > end_ms)
            return err_set(e, ERR_AWAY, "no confirm from RabbitMQ for a message to '%s' within %d s", queue,
                           CONFIRM_MS / 1000);
        arena_reset(arena);
        rc = broker_next_event(b, arena, 16, 200, &ev, e);
    }
    return rc != 0 ? -1 : ev.kind == BROKER_EVENT_ACK;
}

int policy_probe_overflow(struct broker *b, bool *drops, struct err *e)
{
    static const struct broker_arg args[] = {
        {.name = "x-queue-type", .text = "quorum"},
        {.name = "x-max-length", .number = 1},
        {.name = "x-overflow", .text = "reject-publish"},
        {.name = "x-expires", .number = UNUSED_MS},
    };
    char queue[64];
    struct arena arena;
    snprintf(queue, sizeof queue, "postdate.watch.full.%08" PRIx32 "%08" PRIx32, random_u32(), random_u32());
    arena_init(&arena, 1 << 16);
    int taken =
        broker_declare_queue(b, queue, args, sizeof args / sizeof args[0], e) || broker_confirm_select(b, e)
            ? -1
            : 1;
    for (int i = 0; i < TRIES && taken == 1; i++)
        taken = offer(b, queue, &arena, e);
    *drops = taken == 1;
    arena_free(&arena);
    return taken < 0 || broker_delete_queue(b, queue, e) ? -1 : 0;
}
