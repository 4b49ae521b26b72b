/* The owner of a vhost: the identity of one database, recorded in the vhost.
 *
 * Two databases on one vhost would share the intake queue, so that each gets some of the messages, and the
 * delay topology, so that each receives released messages of the other. The record is a durable exchange,
 * broker_names.owner, with the identity in the one argument that RabbitMQ compares and reports, the name of
 * an alternate exchange; nothing is ever published to it. It needs only the gateway's rights, outlives the
 * queues, is part of exported definitions, and exists in the whole cluster, independent of node names. One
 * thread, the one that opened the connection, which stays usable unless a function returns -1. */
#ifndef POSTDATE_AMQP_TOPOLOGY_OWNER_H
#define POSTDATE_AMQP_TOPOLOGY_OWNER_H

#include "amqp/connection/broker.h"

#define OWNER_ID_SIZE 40 /* a UUID's text, with the NUL */

enum owner_verdict {
    OWNER_NOBODY,
    OWNER_OURS,
    OWNER_OTHER,
    OWNER_UNKNOWN, /* the login may not declare broker_names.owner, or a different exchange has that name */
};

struct owner {
    enum owner_verdict verdict;
    char other[OWNER_ID_SIZE]; /* OTHER: the owner; "" if RabbitMQ did not report it */
    char why[300];             /* UNKNOWN */
};

/* Reads the owner, and changes nothing. */
int owner_look(struct broker *b, const char *identity, struct owner *out, struct err *e);
/* Makes it ours if it has no owner; of two concurrent calls one finds OTHER. */
int owner_claim(struct broker *b, const char *identity, struct owner *out, struct err *e);
/* Makes it ours, whoever the owner was. */
int owner_take_over(struct broker *b, const char *identity, struct owner *out, struct err *e);

#endif
