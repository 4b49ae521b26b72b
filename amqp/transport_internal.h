/* What the transports share: the exit, where the wait is over, is a headers exchange in both. */
#ifndef POSTDATE_AMQP_TRANSPORT_INTERNAL_H
#define POSTDATE_AMQP_TRANSPORT_INTERNAL_H

#include "amqp/transport.h"

#define TRANSPORT_PLUGIN_TYPE "x-delayed-message"
#define TRANSPORT_PLUGIN_EXCHANGE "postdate.delayed"
#define TRANSPORT_ROUTE "postdate.route"
#define TRANSPORT_OPEN "postdate.open"

/* ERR_CONFIG unless 1 <= window_ms <= t->max_delay_ms. */
int transport_check_window(const struct transport *t, const struct transport_options *o, struct err *e);
/* The exchanges behind every exit that know whether there is a way (transport_exit.c), and where goes what
 * has none. */
int transport_declare_route(struct broker *b, const struct transport_options *o, struct err *e);
/* Everything that leaves exit also goes there, and to the receipt queue, if there is one. */
int transport_bind_receipts(struct broker *b, const char *exit, const struct transport_options *o,
                            struct err *e);
/* What is addressed to this delivery exchange goes to it, whatever exit it comes from. */
int transport_bind_exit(struct broker *b, struct bytes delivery_exchange, struct err *e);
/* ERR_BUG unless 1 <= delay_ms <= o->window_ms; else appends the header x-postdate-exchange. */
int transport_put_target(const struct transport *t, const struct transport_options *o, int64_t delay_ms,
                         struct bytes delivery_exchange, struct buf *headers, struct err *e);

#endif
