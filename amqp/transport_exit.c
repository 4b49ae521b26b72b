/* The part that both transports have in common: by which header a message finds its delivery exchange, and
 * what tells that it found none.
 *
 *   exit ─┬─ everything ─▶ receipt queue
 *         └─ everything ─▶ postdate.route ── everything ─▶ postdate.open ── x-postdate-exchange ─▶ delivery
 *                                │ not open                      │ none fits                       exchange
 *                                └───────▶ postdate.unrouted ◀───┘
 *
 * The receipt says only that the broker let a message go: it comes also when somebody has deleted the
 * delivery exchange, and its binding with it. So behind the exit there is an exchange with an alternate
 * exchange, which takes what finds none of its bindings; the gateway publishes that, and does not believe its
 * receipt. (The receipt queue can't be bound there: then there would always be a way. And an alternate
 * exchange of the plugin's own exchange would get all messages when they come, because they are routed to
 * nowhere then.)
 *
 * A broker that starts lets go at once what fell due while it was away, also to quorum queues that have no
 * leader yet: those drop it, and nobody hears of it. So postdate.open is not durable: a broker starts without
 * it, and all of that comes back, until a gateway opens the way again. (Where such exchanges outlive a start,
 * in a cluster of which a node lives on, and with RabbitMQ's Khepri, the gateway has doubts instead:
 * gateway/daemon/receipt_doubt.h.) */
#include "amqp/topology.h"
#include "amqp/transport_internal.h"
#include "core/wire.h"
#include <inttypes.h>
#include <string.h>

#define HEADER_EXCHANGE "x-postdate-exchange"
#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

/* "all" of no headers. */
static const struct broker_arg everything[] = {{.name = "x-match", .text = "all"}};

int transport_check_window(const struct transport *t, const struct transport_options *o, struct err *e)
{
    if (o->window_ms < 1 || o->window_ms > t->max_delay_ms) {
        return err_set(e, ERR_CONFIG,
                       "handover.window: %" PRId64 " ms does not fit transport %s: 1 to %" PRId64
                       " ms (%" PRId64 " days) are allowed",
                       o->window_ms, t->name, t->max_delay_ms, t->max_delay_ms / 86400000);
    }
    return 0;
}

/* 1 yes, 0 no, -1 error. Asking for what is missing closes the channel. */
static int has_exchange(struct broker *b, const char *name, struct err *e)
{
    int there = broker_has_exchange(b, name, e);

    return there == 0 && broker_reopen(b, e) ? -1 : there;
}

int transport_is_open(struct broker *b, struct err *e)
{
    return has_exchange(b, TRANSPORT_OPEN, e);
}

int transport_declare_route(struct broker *b, const struct transport_options *o, struct err *e)
{
    static const struct broker_arg unrouted[] = {{.name = "alternate-exchange", .text = TOPOLOGY_UNROUTED}};
    int known = has_exchange(b, TRANSPORT_ROUTE, e);

    /* The alternate exchange first: what finds a missing one is dropped. */
    if (known < 0 || topology_declare_unrouted(b, e) ||
        broker_declare_exchange_with(b, TRANSPORT_ROUTE, "headers", unrouted, COUNT_OF(unrouted), e)) {
        return -1;
    }
    if (known && !o->open) {
        return 0;
    }
    return broker_declare_transient_exchange(b, TRANSPORT_OPEN, "headers", false, unrouted,
                                             COUNT_OF(unrouted), e) ||
                   broker_bind_exchange_with(b, TRANSPORT_OPEN, TRANSPORT_ROUTE, everything,
                                             COUNT_OF(everything), e)
               ? -1
               : 0;
}

int transport_bind_receipts(struct broker *b, const char *exit, const struct transport_options *o,
                            struct err *e)
{
    /* In this order: a receipt should only come where it is known when there is no way. */
    if (broker_bind_exchange_with(b, TRANSPORT_ROUTE, exit, everything, COUNT_OF(everything), e)) {
        return -1;
    }
    return o->receipt_queue
               ? broker_bind_queue_with(b, o->receipt_queue, exit, everything, COUNT_OF(everything), e)
               : 0;
}

int transport_bind_exit(struct broker *b, struct bytes delivery_exchange, struct err *e)
{
    char name[256];
    /* Plain "all" ignores headers whose name starts with x-, so it would match everything. */
    const struct broker_arg args[] = {
        {.name = "x-match", .text = "all-with-x"},
        {.name = HEADER_EXCHANGE, .text = name},
    };

    if (delivery_exchange.len == 0) {
        return err_set(e, ERR_REJECT,
                       "the default exchange cannot be bound: its messages wait in the gateway");
    }
    if (delivery_exchange.len >= sizeof(name) || memchr(delivery_exchange.data, 0, delivery_exchange.len)) {
        char shown[64];
        return err_set(e, ERR_REJECT, "'%s' is no exchange name: 1 to 255 bytes without a NUL are allowed",
                       bytes_printable(delivery_exchange, shown, sizeof(shown)));
    }
    memcpy(name, delivery_exchange.data, delivery_exchange.len);
    name[delivery_exchange.len] = '\0';
    return broker_bind_exchange_with(b, name, TRANSPORT_OPEN, args, COUNT_OF(args), e);
}

int transport_put_target(const struct transport *t, const struct transport_options *o, int64_t delay_ms,
                         struct bytes delivery_exchange, struct buf *headers, struct err *e)
{
    if (delay_ms < 1 || delay_ms > o->window_ms || o->window_ms > t->max_delay_ms) {
        return err_set(e, ERR_BUG,
                       "transport %s: asked to wait %" PRId64 " ms, its window allows 1 to %" PRId64 " ms",
                       t->name, delay_ms, o->window_ms);
    }
    wire_put_string(headers, bytes_of_str(HEADER_EXCHANGE), delivery_exchange);
    return 0;
}
