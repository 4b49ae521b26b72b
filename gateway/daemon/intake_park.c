/* Bad input is parked, not dropped: it goes to postdate.rejected with the reason in x-postdate-error. Through
 * a connection of its own, opened for the batch, so that confirms do not mix with deliveries. */
#include "gateway/daemon/intake.h"
#include "gateway/daemon/startup.h"
#include "gateway/log.h"

#define CONFIRM_MS 10000

static struct broker *open_connection(struct intake *in, struct err *e)
{
    struct broker *b = startup_open_broker(in->gateway->config, "postdate rejected", e);
    if (b && broker_confirm_select(b, e) != 0) {
        broker_drop(b);
        b = NULL;
    }
    return b;
}

static struct bytes parked_body(const struct accept_input *input)
{
    return input->body.data ? input->body
                            : bytes_of("", 0); /* one over max_body was not read; the reason tells its size */
}

static int wait_confirm(struct broker *b, struct arena *arena, uint64_t tag, struct err *e)
{
    int64_t until_ns = clock_monotonic_ns() + CONFIRM_MS * INT64_C(1000000);
    while (clock_monotonic_ns() < until_ns) {
        struct broker_event ev;
        arena_reset(arena);
        if (broker_next_event(b, arena, 1024, 500, &ev, e) != 0)
            return -1;
        if (ev.kind == BROKER_EVENT_RETURN)
            return err_set(e, ERR_AWAY, "the queue postdate.rejected is gone");
        if (ev.kind == BROKER_EVENT_NACK && ev.tag >= tag)
            return err_set(e, ERR_BUSY, "the queue postdate.rejected takes nothing");
        if (ev.kind == BROKER_EVENT_ACK && ev.tag >= tag)
            return 0;
    }
    return err_set(e, ERR_AWAY, "no confirm from RabbitMQ for a refused message within 10 s");
}

static int park_one(struct broker *b, struct arena *arena, const struct intake_delivery *d, struct err *e)
{
    struct buf properties;
    uint64_t tag;
    buf_init(&properties, 1 << 20);
    accept_parked_properties(d->input.properties, d->reason ? d->reason : "refused", &properties);
    struct bytes queue = bytes_of_str("postdate.rejected");
    int rc = broker_publish(b, bytes_of("", 0), queue, buf_bytes(&properties), parked_body(&d->input), true,
                            &tag, e);
    if (rc != 0 &&
        e->kind == ERR_REJECT) { /* the headers do not fit any more with ours: keep the reason and the body */
        buf_reset(&properties);
        accept_parked_properties(bytes_of("", 0), d->reason ? d->reason : "refused", &properties);
        rc = broker_publish(b, bytes_of("", 0), queue, buf_bytes(&properties), parked_body(&d->input), true,
                            &tag, e);
    }
    if (rc == 0)
        rc = wait_confirm(b, arena, tag, e);
    buf_free(&properties);
    return rc;
}

int intake_park(struct intake *in, struct err *e)
{
    size_t refused = 0;
    const char *reason = NULL;
    int rc = 0;
    for (size_t i = in->count; i-- > 0;)
        if (in->deliveries[i].refused) {
            refused++;
            reason = in->deliveries[i].reason;
        }
    if (refused == 0)
        return 0;
    struct broker *b = open_connection(in, e);
    if (!b)
        return -1;
    struct arena arena;
    arena_init(&arena, 1 << 20);
    for (size_t i = 0; i < in->count && rc == 0; i++)
        if (in->deliveries[i].refused)
            rc = park_one(b, &arena, &in->deliveries[i], e);
    arena_free(&arena);
    if (rc == 0)
        broker_close(b);
    else
        broker_drop(b);
    if (rc == 0)
        log_warning("parked %zu message%s in postdate.rejected, the first because: %s", refused,
                    refused == 1 ? "" : "s", reason ? reason : "out of memory");
    return rc;
}
