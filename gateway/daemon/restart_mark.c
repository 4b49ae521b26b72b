#include "gateway/daemon/restart_mark.h"

#include "core/buf.h"
#include "core/clock.h"
#include "core/random.h"
#include "core/wire.h"
#include "gateway/daemon/startup.h"
#include <inttypes.h>
#include <stdio.h>

#define CONFIRM_MS 2000
#define UNUSED_MS 3600000 /* then a dead gateway's queue goes; a look counts as use */

static int publish_mark(struct broker *b, const char *queue, struct err *e)
{
    struct buf properties;
    buf_init(&properties, 64);
    wire_properties_write(&(struct wire_properties){.flags = WIRE_DELIVERY_MODE, .delivery_mode = 1},
                          &properties);
    int rc = properties.failed
                 ? err_set(e, ERR_BUG, "out of memory")
                 : broker_publish(b, bytes_of_str(""), bytes_of_str(queue), buf_bytes(&properties),
                                  bytes_of_str("Postdate looks whether this is still here."), true, NULL, e);
    buf_free(&properties);
    return rc;
}

/* Asking for the queue's length would not do: the queue answers that before it takes what came earlier. */
static int wait_confirmed(struct broker *b, const char *queue, struct err *e)
{
    int64_t give_up_ms = clock_monotonic_ms() + CONFIRM_MS;
    struct broker_event ev = {.kind = BROKER_EVENT_NONE};
    struct arena arena;
    int rc = 0;
    arena_init(&arena, 1 << 16);
    while (rc == 0 && ev.kind != BROKER_EVENT_ACK && clock_monotonic_ms() < give_up_ms) {
        arena_reset(&arena);
        rc = broker_next_event(b, &arena, 1 << 10, 100, &ev, e);
        if (rc == 0 && (ev.kind == BROKER_EVENT_RETURN || ev.kind == BROKER_EVENT_NACK))
            rc = err_set(e, ERR_AWAY, "RabbitMQ did not take a message for queue '%s'", queue);
    }
    arena_free(&arena);
    if (rc == 0 && ev.kind != BROKER_EVENT_ACK)
        rc = err_set(e, ERR_AWAY, "RabbitMQ did not confirm a message for queue '%s' in time", queue);
    return rc;
}

int restart_mark_place(struct restart_mark *m, const struct gateway *g, struct err *e)
{
    static const struct broker_arg args[] = {{.name = "x-queue-type", .text = "classic"},
                                             {.name = "x-expires", .number = UNUSED_MS}};
    struct broker *b = startup_open_broker(g, "postdate mark", e);
    if (!b)
        return -1;
    if (!m->queue[0])
        snprintf(m->queue, sizeof m->queue, "postdate.mark.%08" PRIx32 "%08" PRIx32, random_u32(),
                 random_u32());
    int rc = broker_declare_queue(b, m->queue, args, sizeof args / sizeof args[0], e);
    if (rc == 0)
        rc = broker_declare_transient_exchange(b, m->queue, "fanout", true, NULL, 0, e);
    if (rc == 0)
        rc = broker_bind_queue(b, m->queue, m->queue, "", e);
    if (rc == 0)
        rc = broker_confirm_select(b, e);
    if (rc == 0)
        rc = publish_mark(b, m->queue, e);
    if (rc == 0)
        rc = wait_confirmed(b, m->queue, e);
    broker_close(b);
    m->placed = rc == 0;
    return rc;
}

int restart_mark_look(struct restart_mark *m, struct broker *b, struct err *e)
{
    uint32_t count = 0;
    struct err why = {0};
    bool queue = broker_count_queue(b, m->queue, &count, &why) == 0;
    if (!queue && why.kind != ERR_NOT_FOUND)
        return err_set(e, why.kind, "%s", why.text);
    m->placed = count > 0;
    if (m->placed)
        return 1;
    int there = queue || broker_reopen(b, e) == 0 ? broker_has_exchange(b, m->queue, e) : -1;
    if (there < 0)
        return -1;
    m->swept = !there;
    if (!queue)
        m->queue[0] = '\0'; /* gone, or on a node that is away: the next one has another name */
    return 0;
}

void restart_mark_remove(struct restart_mark *m, struct broker *b)
{
    struct err e = {0};
    if (m->placed && b && !broker_is_dead(b))
        broker_delete_queue(b, m->queue, &e);
    m->placed = false;
}
