/* Whose a vhost is: it remembers the identity of one database.
 *
 * Two databases on one vhost would share the intake queue, so that each gets some of the messages, and the
 * delay topology, so that each receives the outcomes of the other's. The memory is a durable exchange,
 * broker_names.owner, that carries the identity in its one argument that RabbitMQ compares and tells, the
 * name of an alternate exchange; nothing is ever published to it. It needs no rights but those of the
 * gateway, outlives the queues, is part of exported definitions, and is in the whole cluster, whatever its
 * nodes are called. One thread, the one that opened the connection, which stays usable unless a function
 * returns -1. */
#ifndef POSTDATE_AMQP_TOPOLOGY_OWNER_H
#define POSTDATE_AMQP_TOPOLOGY_OWNER_H

#include "amqp/connection/broker.h"

#define OWNER_ID_SIZE 40 /* a UUID's text, with the NUL */

enum owner_verdict {
    OWNER_NOBODY,
    OWNER_OURS,
    OWNER_OTHER,
    OWNER_UNKNOWN, /* the login may not declare broker_names.owner, or somebody else's is called so */
};

struct owner {
    enum owner_verdict verdict;
    char other[OWNER_ID_SIZE]; /* OTHER: whose it is; "" when RabbitMQ did not say */
    char why[300];             /* UNKNOWN */
};

/* Looks, and changes nothing. */
int owner_look(struct broker *b, const char *identity, struct owner *out, struct err *e);
/* Makes it ours where it is nobody's; of two that do so at once one finds OTHER. */
int owner_claim(struct broker *b, const char *identity, struct owner *out, struct err *e);
/* Makes it ours, whosever it was. */
int owner_take_over(struct broker *b, const char *identity, struct owner *out, struct err *e);

#endif
