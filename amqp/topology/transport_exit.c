/* The part that all transports have in common: where the wait ends, or where the exit queue waits.
 *
 *   postdate.native, postdate.delayed, or postdate.ttl.exit ─┬─ in an envelope ─▶ postdate.exit ─▶ relay
 *                                                            └─ as it is delivered ─▶ postdate.exit.broker
 * (last_hop.h)
 *
 * Earlier releases let RabbitMQ do the last hop: the exit was bound to exchanges that led to the delivery
 * exchanges, and to a queue of receipts. Those go, after the exit queue is bound: a message that comes out in
 * between may arrive twice, and none gets lost. */
#include "amqp/topology/last_hop.h"
#include "amqp/topology/topology.h"
#include "amqp/topology/transport_internal.h"
#include "core/message/envelope.h"
#include <inttypes.h>

#define OLD_ROUTE "postdate.route"
#define OLD_OPEN "postdate.open"
#define OLD_UNROUTED "postdate.unrouted"
#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

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

int transport_delay(const struct transport *t, const struct transport_options *o,
                    const struct transport_wait *w, int64_t *delay_ms, struct err *e)
{
    *delay_ms = w->until_ms - w->now_ms;
    if (*delay_ms < 1 || *delay_ms > o->window_ms || o->window_ms > t->max_delay_ms) {
        return err_set(e, ERR_BUG,
                       "transport %s: asked to wait %" PRId64 " ms, its window allows 1 to %" PRId64 " ms",
                       t->name, *delay_ms, o->window_ms);
    }
    return 0;
}

int transport_bind_exit(struct broker *b, const char *exit, const struct transport_options *o, struct err *e)
{
    static const struct broker_arg enveloped[] = {{.name = "x-match", .text = "all-with-x"},
                                                  {.name = ENVELOPE_HEADER, .present = true}};
    /* "all" of no headers. */
    static const struct broker_arg everything[] = {{.name = "x-match", .text = "all"}};

    if (topology_declare_exit(b, e) ||
        broker_bind_queue_with(b, TOPOLOGY_EXIT_QUEUE, exit, enveloped, COUNT_OF(enveloped), e) ||
        broker_unbind_queue_with(b, TOPOLOGY_EXIT_QUEUE, exit, everything, COUNT_OF(everything), e) ||
        broker_delete_exchange(b, OLD_ROUTE, e) || broker_delete_exchange(b, OLD_OPEN, e) ||
        broker_delete_exchange(b, OLD_UNROUTED, e) ||
        broker_unbind_queue_with(b, LAST_HOP_RECEIPTS, exit, everything, COUNT_OF(everything), e)) {
        return -1;
    }
    return o->last_hop_queue ? last_hop_bind_exit(b, exit, o->last_hop_queue, e) : 0;
}

bool transport_no_queue(size_t i, char name[TRANSPORT_NAME_SIZE])
{
    (void)i;
    (void)name;
    return false;
}
