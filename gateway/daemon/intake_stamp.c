/* Does this broker stamp what it takes (core/stamp.h)? Asked with a probe through the intake's own connection
 * and a queue that only this connection sees, at each connect: another broker may have answered, or another
 * setting. */
#include "core/clock.h"
#include "core/stamp.h"
#include "gateway/daemon/intake.h"
#include "gateway/log.h"
#include <inttypes.h>
#include <stdio.h>

#define TAG "postdate.probe"
#define PROBE_WAIT_MS 2000

/* The database's clock, rounded down, or up. */
static int database_ms(struct intake *in, bool up, int64_t *out_ms, struct err *e)
{
    int64_t us;
    if (store_clock(in->pg, &us, e) != 0)
        return -1;
    *out_ms = us / 1000 + (up && us % 1000 != 0);
    return 0;
}

/* Publishes to the queue and takes the message out again. 0: with the finding. */
static int exchange_probe(struct intake *in, const char *queue, struct stamp_finding *out, struct err *e)
{
    int64_t sent_ms, received_ms, give_up_ms = clock_monotonic_ms() + PROBE_WAIT_MS;
    struct broker_event ev = {.kind = BROKER_EVENT_NONE};
    struct buf properties;
    struct err database = {0};
    bool timed = database_ms(in, false, &sent_ms, &database) == 0;
    buf_init(&properties, 256);
    stamp_put_probe(&properties);
    int rc = properties.failed ? err_set(e, ERR_BUG, "out of memory")
                               : broker_publish(in->broker, bytes_of_str(""), bytes_of_str(queue),
                                                buf_bytes(&properties), bytes_of_str(""), false, NULL, e);
    buf_free(&properties);
    while (rc == 0 && ev.kind != BROKER_EVENT_DELIVERY && clock_monotonic_ms() < give_up_ms) {
        arena_reset(&in->arena);
        rc = broker_next_event(in->broker, &in->arena, INTAKE_BODY_MAX, 100, &ev, e);
    }
    if (rc != 0 || ev.kind != BROKER_EVENT_DELIVERY)
        return rc;
    if (timed && database_ms(in, true, &received_ms, &database) == 0)
        *out = stamp_judge(ev.properties, sent_ms, received_ms);
    return broker_ack(in->broker, ev.tag, false, e);
}

static void say(struct intake *in, const struct stamp_finding *f)
{
    if (f->verdict == STAMP_SKEWED)
        log_warning("RabbitMQ stamps messages (" STAMP_HEADER
                    "), but its clock and the database's differ by %" PRId64
                    " ms: delays count from when the gateway reads (allowed: %d ms)",
                    f->behind_ms < 0 ? -f->behind_ms : f->behind_ms, STAMP_SKEW_MAX_MS);
    else if (f->verdict == STAMP_TRUSTED && !in->stamp_said)
        log_info("RabbitMQ stamps messages (" STAMP_HEADER "): delays count from their arrival there");
    else if (f->verdict == STAMP_NONE && in->stamp_said)
        log_info("RabbitMQ no longer stamps messages: delays count from when the gateway reads");
    in->stamp_said = f->verdict == STAMP_TRUSTED;
}

int intake_find_stamps(struct intake *in, struct err *e)
{
    struct stamp_finding f = {.verdict = STAMP_NONE};
    in->rules.broker_stamps = false;
    if (in->stamp_refused)
        return 0;
    snprintf(in->probe_queue, sizeof in->probe_queue, TAG ".%08" PRIx32 "%08" PRIx32, random_u32(),
             random_u32());
    if (broker_declare_exclusive_queue(in->broker, in->probe_queue, e) != 0 ||
        broker_consume(in->broker, in->probe_queue, TAG, 1, e) != 0 ||
        exchange_probe(in, in->probe_queue, &f, e) != 0 || broker_cancel_consume(in->broker, TAG, e) != 0) {
        in->stamp_refused = !err_is_transient(e);
        if (in->stamp_refused)
            log_info("RabbitMQ was not asked whether it stamps messages, delays count from when the gateway "
                     "reads: %s",
                     e->text);
        return -1;
    }
    in->rules.broker_stamps = f.verdict == STAMP_TRUSTED;
    in->rules.stamp_behind_ms = f.behind_ms;
    say(in, &f);
    return 0;
}

bool intake_is_probe(const struct intake *in, const struct broker_event *ev)
{
    return ev->exchange.len == 0 && in->probe_queue[0] != '\0' &&
           bytes_equal_str(ev->routing_key, in->probe_queue);
}
