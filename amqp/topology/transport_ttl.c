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
#include "amqp/topology/transport_internal.h"
#include "core/base/names.h"
#include "core/message/ttl_ladder.h"
#include "core/message/wire.h"

#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

/* Classic: cheaper than quorum per hop, and what it may lose is rescued.
 * Named, because a vhost may have another default. Changing it needs other queue names: an existing queue
 * cannot change its type. */
#ifndef RUNG_QUEUE_TYPE /* tests/bench measures quorum too */
#define RUNG_QUEUE_TYPE "classic"
#endif

/* Where messages go after a level. */
static const char *exchange_below(int level)
{
    return level == 0 ? broker_names.ladder_exit : ttl_ladder_exchange(level - 1);
}

static int declare_rung(struct broker *b, int level, int digit, struct err *e)
{
    char queue[TTL_LADDER_NAME_SIZE];
    const struct broker_arg args[] = {
        {.name = "x-queue-type", .text = RUNG_QUEUE_TYPE},
        {.name = "x-message-ttl", .number = ttl_ladder_ttl_ms(level, digit)},
        {.name = "x-dead-letter-exchange", .text = exchange_below(level)},
        {.name = "x-overflow", .text = "reject-publish"},
    };
    const struct broker_arg match[] = {
        {.name = "x-match", .text = "all-with-x"},
        {.name = ttl_ladder_header(level), .number = digit},
    };
    const struct broker_binding x = {queue, ttl_ladder_exchange(level), NULL, match, COUNT_OF(match)};
    ttl_ladder_queue(level, digit, queue);
    return broker_declare_queue(b, queue, args, COUNT_OF(args), e) || broker_bind_queue(b, &x, e) ? -1 : 0;
}

static int declare_level(struct broker *b, int level, struct err *e)
{
    const struct broker_arg zero[] = {
        {.name = "x-match", .text = "all-with-x"},
        {.name = ttl_ladder_header(level), .number = 0},
    };
    const struct broker_binding x = {exchange_below(level), ttl_ladder_exchange(level), NULL, zero,
                                     COUNT_OF(zero)};
    if (broker_declare_exchange(b, ttl_ladder_exchange(level), "headers", e))
        return -1;
    for (int digit = 1; digit < TTL_LADDER_RADIX; digit++)
        if (declare_rung(b, level, digit, e))
            return -1;
    return broker_bind_exchange(b, &x, e);
}

static int ttl_declare(struct broker *b, const struct transport_options *o, struct err *e)
{
    if (transport_check_window(&transport_ttl, o, e) ||
        broker_declare_exchange(b, broker_names.ladder_exit, "headers", e) ||
        transport_bind_exit(b, broker_names.ladder_exit, o, e))
        return -1;
    /* From below: nothing that comes down ever finds its next step missing. */
    for (int level = 0; level < ttl_ladder_levels(o->window_ms); level++)
        if (declare_level(b, level, e))
            return -1;
    return 0;
}

static int ttl_address(const struct transport_options *o, const struct transport_wait *w,
                       struct bytes *exchange, struct buf *headers, struct err *e)
{
    int digits[TTL_LADDER_LEVELS_MAX];
    int64_t delay_ms;
    if (transport_delay(&transport_ttl, o, w, &delay_ms, e))
        return -1;
    int used = ttl_ladder_digits(delay_ms, digits);
    for (int level = 0; level < used; level++)
        wire_put_int64(headers, bytes_of_str(ttl_ladder_header(level)), digits[level]);
    *exchange = bytes_of_str(ttl_ladder_exchange(used - 1));
    return headers->failed ? err_set(e, ERR_BUG, "no room for the headers of a wait") : 0;
}

static int ttl_count(struct broker *b, const struct transport_options *o, int64_t *waiting, struct err *e)
{
    char queue[TTL_LADDER_NAME_SIZE];
    uint32_t ready;
    *waiting = 0;
    for (int level = 0; level < ttl_ladder_levels(o->window_ms); level++) {
        for (int digit = 1; digit < TTL_LADDER_RADIX; digit++) {
            if (broker_look_at_queue(b, ttl_ladder_queue(level, digit, queue), &ready, NULL, e))
                return -1;
            *waiting += ready;
        }
    }
    return 0;
}

static const char *ttl_exchange(size_t i)
{
    return i == 0                       ? broker_names.ladder_exit
           : i <= TTL_LADDER_LEVELS_MAX ? ttl_ladder_exchange((int)i - 1)
                                        : NULL;
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

const struct transport transport_ttl = {
    .name = "ttl",
    .max_delay_ms = TTL_LADDER_MAX_DELAY_MS,
    .declare = ttl_declare,
    .address = ttl_address,
    .count = ttl_count,
    .exchange = ttl_exchange,
    .queue = ttl_queue,
};
