/* Up to when the receipts have been read, by which the claimer knows what is lost and what is merely late.
 *
 * RabbitMQ gives the receipts of all gateways to one of them at a time (amqp/topology.h), and only that one
 * may say that a receipt has not come. Each sends a ping into the receipt queue once a second, by way of the
 * default exchange; who reads its own has read every receipt that was there before it. It comes to those that
 * read no receipts when their turn has come, with what the one before had not acknowledged.
 *
 * The mark is when that ping was sent, less the greatest lag of the receipts that came a short while ago: so
 * late RabbitMQ lets go. Not the due time of the last receipt, as a busy ladder lets messages go out of
 * order. After a new connection, and when the turn comes, there is no mark for a while: a broker that starts
 * has much to let go before its receipts come, and how late it is was not seen yet.
 *
 * Owned and used by the receipts' thread. */
#ifndef POSTDATE_GATEWAY_RECEIPT_MARK_H
#define POSTDATE_GATEWAY_RECEIPT_MARK_H

#include "amqp/broker.h"
#include "gateway/daemon/gateway.h"

struct receipt_mark {
    struct gateway *gateway;
    char name[32];               /* of this gateway's pings */
    int64_t connected_ms;        /* monotonic, as all of these; 0: never */
    int64_t pinged_ms;           /* the last ping was sent; 0: none on this connection */
    int64_t heard_ms;            /* a ping or a receipt came; 0: none on this connection */
    int64_t turn_ms;             /* since when they come without a long pause */
    int64_t read_ms;             /* when the last of its pings that it has read was sent; 0: none */
    int64_t least_due_ms;        /* of the receipts that came since it was moved last; database time */
    int64_t lag_ms, lag_seen_ms; /* how late the broker let go lately, at most; and when */
};

void receipt_mark_init(struct receipt_mark *m, struct gateway *g);
/* Nothing was read from the new connection yet. */
void receipt_mark_connected(struct receipt_mark *m);
/* Sends a ping when it is time for one. -1: the connection is dead. */
int receipt_mark_ping(struct receipt_mark *m, struct broker *b, struct err *e);
/* A receipt came. */
void receipt_mark_receipt(struct receipt_mark *m, struct message_id id);
/* Something else came: is it a ping? */
void receipt_mark_other(struct receipt_mark *m, struct bytes properties);
/* All that came is settled or locked. locked: the ids of the latter. */
void receipt_mark_move(struct receipt_mark *m, const struct message_id *locked, size_t count);

#endif
