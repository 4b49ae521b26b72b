/* Does this broker stamp what it takes (core/message/delay.h)? Asked with a probe and a queue that only its
 * connection sees: at each connect, through the intake's own connection, for another broker may have
 * answered, or another setting.
 *
 * A stamp matters only where the gateway reads late; what it reads at once counts from now. But what looks as
 * if it had waited may as well be new, and a clock have been set, or a machine have stood still, since the
 * last probe. So before such a stamp is believed the broker is asked again, after the message came, and not
 * more than ten times a second. That goes by a second connection, which is opened while the intake has
 * nothing to do: without it delays count from when the gateway reads. */
#include "core/base/clock.h"
#include "core/base/names.h"
#include "core/message/delay.h"
#include "core/message/wire.h"
#include "gateway/intake/intake.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"
#include <inttypes.h>
#include <stdio.h>

#define TAG "postdate probe"
#define PROBE_WAIT_MS 2000
#define PROBE_ARENA (256u * 1024)
#define READ_LATE_MS 100
#define PROBE_VALID_MS 100
#define PROBER_AGAIN_MS 30000

/* The database's clock, rounded down, or up. */
static int database_ms(struct intake *in, bool up, int64_t *out_ms, struct err *e)
{
    int64_t us;
    if (store_clock(in->inbox.pg, &us, e) != 0)
        return -1;
    *out_ms = us / 1000 + (up && us % 1000 != 0);
    return 0;
}

/* Publishes to the queue and takes the message out again. 0: with the finding. */
static int exchange_probe(struct intake *in, struct broker *b, const char *queue, struct stamp_finding *out,
                          struct err *e)
{
    int64_t sent_ms, received_ms;
    struct broker_event ev = {.kind = BROKER_EVENT_NONE};
    struct buf properties;
    struct arena arena;
    struct err database = {0};
    bool timed = database_ms(in, false, &sent_ms, &database) == 0;
    buf_init(&properties, 256);
    arena_init(&arena, PROBE_ARENA);
    stamp_put_probe(&properties);
    int rc = broker_publish_to_queue(b, queue, &properties, (struct bytes){0}, NULL, e);
    if (rc == 0)
        rc = broker_await_event(b, 1u << BROKER_EVENT_DELIVERY, PROBE_WAIT_MS, &arena, &ev, e);
    if (rc > 0) {
        if (timed && database_ms(in, true, &received_ms, &database) == 0)
            *out = stamp_judge(ev.properties, sent_ms, received_ms);
        rc = broker_ack(b, ev.tag, false, e);
    }
    arena_free(&arena);
    return rc;
}

static int probe(struct intake *in, struct broker *b, char queue[NAMES_SIZE], struct stamp_finding *out,
                 struct err *e)
{
    names_random(broker_names.probe, queue);
    return broker_declare_exclusive_queue(b, queue, NULL, e) != 0 ||
                   broker_consume(b, queue, TAG, 1, e) != 0 || exchange_probe(in, b, queue, out, e) != 0 ||
                   broker_cancel_consume(b, TAG, e) != 0
               ? -1
               : 0;
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

static void take_finding(struct intake *in, const struct stamp_finding *f)
{
    in->stamps = f->verdict;
    in->rules.stamp_behind_ms = f->behind_ms;
    in->stamps_asked_ms = clock_monotonic_ms();
    say(in, f);
}

int intake_find_stamps(struct intake *in, struct err *e)
{
    struct stamp_finding f = {.verdict = STAMP_NONE};
    in->stamps = STAMP_NONE;
    if (in->stamp_refused)
        return 0;
    if (probe(in, in->inbox.broker, in->probe_queue, &f, e) != 0) {
        in->stamp_refused = !err_is_transient(e);
        if (in->stamp_refused)
            log_info("cannot check whether RabbitMQ stamps messages; delays count from when the gateway "
                     "reads: %s",
                     e->text);
        return -1;
    }
    take_finding(in, &f);
    return 0;
}

/* Does a stamp say that its message waited for the gateway? */
static bool reads_late(const struct intake *in, int64_t now_ms)
{
    struct wire_properties p;
    struct wire_field f;
    int64_t stamp_ms, waited_ms;
    for (size_t i = 0; i < in->inbox.count; i++)
        if (wire_properties_read(in->inbox.deliveries[i].input.properties, &p, NULL) == 0 &&
            wire_find(p.headers, STAMP_HEADER, &f) && wire_field_int(&f, &stamp_ms) &&
            !__builtin_sub_overflow(now_ms - in->rules.stamp_behind_ms, stamp_ms, &waited_ms) &&
            waited_ms > READ_LATE_MS)
            return true;
    return false;
}

void intake_open_prober(struct intake *in)
{
    int64_t now_ms = clock_monotonic_ms();
    struct err e = {0};
    if (in->prober || in->stamps == STAMP_NONE || now_ms < in->prober_ms)
        return;
    in->prober = sessions_open_broker_with(in->runtime, "postdate probe", 0, &e);
    in->prober_ms = now_ms + PROBER_AGAIN_MS;
}

void intake_close_prober(struct intake *in)
{
    broker_drop(in->prober);
    in->prober = NULL;
    in->prober_ms = 0;
}

/* Nobody reads from that connection between two questions, so it may have been lost unnoticed. */
static void ask_again(struct intake *in)
{
    struct stamp_finding f = {.verdict = STAMP_NONE};
    char queue[NAMES_SIZE];
    struct err e = {0};
    if (in->prober && probe(in, in->prober, queue, &f, &e) == 0) {
        take_finding(in, &f);
        return;
    }
    in->stamps_asked_ms = 0; /* the next batch asks again */
    broker_drop(in->prober);
    in->prober = NULL;
}

void intake_weigh_stamps(struct intake *in, int64_t now_ms)
{
    in->rules.broker_stamps = false;
    if (in->stamps == STAMP_NONE || !reads_late(in, now_ms))
        return;
    if (in->stamps_asked_ms == 0 || clock_monotonic_ms() - in->stamps_asked_ms >= PROBE_VALID_MS)
        ask_again(in);
    in->rules.broker_stamps = in->stamps == STAMP_TRUSTED && in->stamps_asked_ms != 0;
}

bool intake_is_probe(struct inbox *box, const struct broker_event *ev)
{
    const struct intake *in = box->own;
    return ev->exchange.len == 0 && in->probe_queue[0] != '\0' &&
           bytes_equal_str(ev->routing_key, in->probe_queue);
}
