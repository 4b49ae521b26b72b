/* What stands in front of the intake queue where RabbitMQ itself delays (4.4 and later).
 *
 * A quorum queue there keeps a message with a number in x-opt-delivery-time until then: the gateway would not
 * see it before. A far too large number stopped the queue for good in the source that was tried. No argument
 * or policy turns this off. A classic queue does not look at the header, so what has it takes another way:
 *
 *   intake exchanges ─▶ postdate.sort ─┬─ has x-opt-delivery-time ─▶ <intake queue>.timed, classic
 *                                      └─ has not: postdate.plain ─▶ the intake queue, quorum
 */
#ifndef POSTDATE_AMQP_TOPOLOGY_TOPOLOGY_FRONT_H
#define POSTDATE_AMQP_TOPOLOGY_TOPOLOGY_FRONT_H

#include "amqp/connection/broker.h"

#define TOPOLOGY_SORT "postdate.sort"
#define TOPOLOGY_PLAIN "postdate.plain"
#define TOPOLOGY_TIMED_SUFFIX ".timed" /* core/message/x_death.c knows it, too */

/* Does this broker need it? */
bool topology_front_needed(const struct broker *b);

/* Declares the two exchanges and the classic queue, whose name goes to timed. expired_queue: where it
 * dead-letters what expires there. TOPOLOGY_PLAIN is left for the caller to bind. */
int topology_front_declare(struct broker *b, const char *intake_queue, const char *expired_queue,
                           char timed[300], struct err *e);

/* Lets an intake exchange that is there lead to it instead of to the queue. In between a message with the
 * header may be stored twice, and none is lost. */
int topology_front_bind(struct broker *b, const char *exchange, const char *intake_queue, struct err *e);

#endif
