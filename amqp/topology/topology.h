/* What Postdate declares in RabbitMQ: exchange `postdate` -> quorum queue `postdate.intake` (expired and
 * over-delivered messages dead-letter to `postdate.intake.expired`, which is consumed too),
 * `postdate.intake.delayed`, which RabbitMQ's exchange type fills (exchange-type/),
 * `postdate.delivery`, `postdate.rejected`, and the exchanges under [route]. From RabbitMQ 4.4 on also what
 * stands in front of the intake queue, and with intake.queues the queues beside it
 * (topology_shards.h). Idempotent; safe from several gateways at once. */
#ifndef POSTDATE_AMQP_TOPOLOGY_TOPOLOGY_H
#define POSTDATE_AMQP_TOPOLOGY_TOPOLOGY_H

#include "amqp/connection/broker.h"
#include "amqp/topology/topology_shards.h"

#define TOPOLOGY_EXIT_NAME_SIZE 300

struct topology {
    const char *intake_exchange;        /* fanout, durable */
    const char *intake_queue;           /* quorum, durable; dead-letters to the default exchange with key
                                           "<intake_queue>.expired" */
    const char *delivery_exchange;      /* topic, durable, where it is not there */
    const char *const *route_exchanges; /* fanout, durable, bound to intake_queue */
    size_t route_count;
    /* With several intake queues, as shards_run.h has it: what is to be done, and what is remembered. */
    enum topology_step { TOPOLOGY_DIRECT, TOPOLOGY_PREPARE, TOPOLOGY_NARROW, TOPOLOGY_WIDEN } step;
    int queues, most; /* 0: as 1 */
    bool unknown;     /* how many queues are bound: the database has seen none */
    size_t way;       /* of topology_intake_ways */
    const char *const *moved;
    size_t moved_count;
};

#define TOPOLOGY_WAYS 4
/* random, routing-key, message-id, key: by what a message is given to one of several intake queues. */
extern const struct shards_way topology_intake_ways[TOPOLOGY_WAYS];

struct topology_found {
    int queues;              /* intake_queue and those beside it, all that are to be read */
    char expired_queue[300]; /* the name of the second intake queue */
    char timed_queue[300];   /* that of the third, in front; "": there is none */
    struct err refused;      /* the first exchange that cannot be declared: it has another type, say */
};

/* Declares all of it. Of an exchange that RabbitMQ refuses, out->refused tells, and all others are declared.
 */
int topology_declare(struct broker *b, const struct topology *t, struct topology_found *out, struct err *e);

/* What stands in front of the intake queue where RabbitMQ itself delays (4.4 and later).
 *
 * A quorum queue there keeps a message with a number in x-opt-delivery-time until then: the gateway would not
 * see it before. A far too large number stopped the queue for good in the source that was tried. No argument
 * or policy turns this off. A classic queue does not look at the header, so what has it takes another way:
 *
 *   intake exchanges ─▶ postdate.sort ─┬─ has x-opt-delivery-time ─▶ <intake queue>.timed, classic
 *                                      └─ has not: postdate.plain ─▶ the intake queue, quorum
 */
#define TOPOLOGY_TIMED_SUFFIX ".timed" /* core/message/x_death.c knows it, too */
/* Does this broker need it? */
bool topology_front_needed(const struct broker *b);

/* All exchanges by which messages come to the intake queue: with the front broker_names.plain first;
 * intake_exchange; those of routes. out has room for route_count + 2. How many. */
size_t topology_sources(const struct broker *b, const struct topology *t, const char **out);

/* Is it the intake queue, or one of those beside it? */
bool topology_is_intake_queue(const char *intake_queue, const char *name);

/* Declares one of its queues, by its name: intake_queue, one beside it, broker_names.intake_delayed,
 * broker_names.rejected,
 * "<intake_queue>.expired", or broker_names.control, which topology_declare leaves to the thread that reads
 * it: a gateway works without it. */
int topology_declare_queue(struct broker *b, const char *intake_queue, const char *name, struct err *e);

/* A queue that gives nothing up before a gateway has acknowledged it. */
int topology_declare_lasting(struct broker *b, const char *name, struct err *e);
/* The exit queues, which are such queues: what RabbitMQ waited with, until a gateway takes it. Their number:
 * from 1 on. */
void topology_exit_queue(int number, char name[TOPOLOGY_EXIT_NAME_SIZE]);
/* Number 1 to `queues`, whose leaders RabbitMQ puts on different nodes. */
int topology_declare_exit(struct broker *b, int queues, struct err *e);

/* --- What RabbitMQ has for messages that consumers refused: their queues dead-letter to the internal
 * exchange postdate.retry, which leads to the queue of that name; from the exchange postdate.return each goes
 * back to exactly one queue, which its header x-postdate-queue names. */
/* Idempotent. */
int topology_declare_retry(struct broker *b, struct err *e);

/* Lets messages for that queue go back to it; declares the exchange, too. ERR_NOT_FOUND: there is no such
 * queue, or it is another connection's own; ERR_PERMISSION: its owner does not let us (the connection is dead
 * then). */
int topology_bind_return(struct broker *b, struct bytes queue, struct err *e);

#endif
