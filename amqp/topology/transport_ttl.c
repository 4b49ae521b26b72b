/* The broker waits on a ladder of TTL queues (core/message/ttl_ladder.h): any RabbitMQ from 3.10 on, no
 * plugin.
 *
 *   level 4 ──▶ rung d=1..15 ─┐ expired
 *      │ d=0                  ▼
 *      └────────────────▶ level 3 ──▶ … level 0 ──▶ rung ──▶ postdate.ttl.exit ──▶ postdate.exit
 *
 * Levels are headers exchanges: level k looks at the header x-postdate-l<k> only, so that routing key, CC and
 * body travel untouched (dead-lettering keeps them as long as x-dead-letter-routing-key is not set). A
 * message enters at its highest digit that is not 0.
 *
 * A digit 0 passes on by a binding, not by an alternate exchange: if somebody deletes a rung, its messages
 * get lost here, and are claimed again when they do not come out, instead of coming out early. For the same
 * reason rungs have x-overflow=reject-publish: under a policy with max-length the default would push the
 * oldest message out, early, through the dead-letter exchange. */
#include "amqp/topology/transport.h"
#include "core/base/names.h"
#include "core/message/ttl_ladder.h"
#include "core/message/wire.h"

/* Where messages go after a level. */
static const char *exchange_below(int level)
{
    return level == 0 ? broker_names.ladder_exit : ttl_ladder_exchange(level - 1);
}

/* Classic: cheaper than quorum per hop, and what it may lose is rescued. Named, because a vhost may have
 * another default. Changing it needs other queue names: an existing queue cannot change its type. */
static int declare_rung(struct broker *b, int level, int digit, struct err *e)
{
    char queue[TTL_LADDER_NAME_SIZE];
    const struct broker_binding x = {
        queue, ttl_ladder_exchange(level), NULL,
        BROKER_ARGS(BROKER_TEXT("x-match", "all-with-x"), BROKER_NUMBER(ttl_ladder_header(level), digit))};
    ttl_ladder_queue(level, digit, queue);
    return broker_declare_queue(b, queue,
                                BROKER_ARGS(BROKER_TEXT("x-queue-type", "classic"),
                                            BROKER_NUMBER("x-message-ttl", ttl_ladder_ttl_ms(level, digit)),
                                            BROKER_TEXT("x-dead-letter-exchange", exchange_below(level)),
                                            BROKER_TEXT("x-overflow", "reject-publish")),
                                e) ||
                   broker_bind_queue(b, &x, e)
               ? -1
               : 0;
}

/* Waits with a slack need no rungs of level 0. */
static int first_level(bool exact)
{
    return exact ? 0 : 1;
}

static int declare_level(struct broker *b, int level, bool exact, struct err *e)
{
    const struct broker_binding zero = {
        exchange_below(level), ttl_ladder_exchange(level), NULL,
        BROKER_ARGS(BROKER_TEXT("x-match", "all-with-x"), BROKER_NUMBER(ttl_ladder_header(level), 0))};
    if (broker_declare_exchange(b, ttl_ladder_exchange(level), "headers", e))
        return -1;
    for (int digit = 1; level >= first_level(exact) && digit < TTL_LADDER_RADIX; digit++)
        if (declare_rung(b, level, digit, e))
            return -1;
    return broker_bind_exchange(b, &zero, e);
}

/* From below: nothing that comes down ever finds its next step missing. */
static int declare_levels(struct broker *b, const struct transport_options *o, struct err *e)
{
    for (int level = 0; level < ttl_ladder_levels(o->window_ms); level++)
        if (declare_level(b, level, o->exact, e))
            return -1;
    return 0;
}

int transport_ttl_count(struct broker *b, int64_t window_ms, bool exact, int64_t *waiting, struct err *e)
{
    char queue[TTL_LADDER_NAME_SIZE];
    uint32_t ready;
    *waiting = 0;
    for (int level = first_level(exact); level < ttl_ladder_levels(window_ms); level++) {
        for (int digit = 1; digit < TTL_LADDER_RADIX; digit++) {
            if (broker_look_at_queue(b, ttl_ladder_queue(level, digit, queue), &ready, NULL, e))
                return -1;
            *waiting += ready;
        }
    }
    return 0;
}

static const char *ttl_steer(const struct transport_wait *w, struct buf *headers)
{
    int digits[TTL_LADDER_LEVELS_MAX];
    int64_t wait_ms = ttl_ladder_shorten(w->until_ms - w->now_ms, w->slack_ms);
    if (wait_ms == 0)
        return broker_names.ladder_exit;
    int used = ttl_ladder_digits(wait_ms, digits);
    for (int level = 0; level < used; level++)
        wire_put_int64(headers, bytes_of_str(ttl_ladder_header(level)), digits[level]);
    return ttl_ladder_exchange(used - 1);
}

static bool ttl_queue(size_t i, char name[TRANSPORT_NAME_SIZE])
{
    const size_t rungs = TTL_LADDER_RADIX - 1;
    if (i >= TTL_LADDER_LEVELS_MAX * rungs)
        return false;
    ttl_ladder_queue((int)(i / rungs), (int)(i % rungs) + 1, name);
    return true;
}

_Static_assert(TTL_LADDER_NAME_SIZE <= TRANSPORT_NAME_SIZE, "a name fits");

static const char *const exchanges[] = {
    broker_names.ladder_exit, broker_names.ladder_0, broker_names.ladder_1,
    broker_names.ladder_2,    broker_names.ladder_3, broker_names.ladder_4,
    broker_names.ladder_5,    broker_names.ladder_6, NULL};

const struct transport transport_ttl = {
    .name = "ttl",
    .max_delay_ms = TTL_LADDER_MAX_DELAY_MS,
    .exit = {.name = broker_names.ladder_exit, .type = "headers"},
    .exchanges = exchanges,
    .queue = ttl_queue,
    .declare = declare_levels,
    .steer = ttl_steer,
};
