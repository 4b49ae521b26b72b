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
#include "core/message/history_point.h"

/* --- The list of what gateways declare. Not in it: exchanges that the configuration names (intake, routes,
 * delivery, cells), bindings between exchanges, and the queues and exchanges of probes. */
enum topology_kind { TOPOLOGY_QUEUE = 1, TOPOLOGY_EXCHANGE, TOPOLOGY_BINDING };
/* Bits: the parts of the list, and what gateways do with a queue. */
enum {
    TOPOLOGY_INTAKE = 1,
    TOPOLOGY_CONTROL = 2, /* declared by the control thread: a gateway works without it */
    TOPOLOGY_FRONT = 4,   /* only where topology_front_needed */
    TOPOLOGY_HISTORY = 8,
    /* For messages that consumers refused: their queues dead-letter to the internal exchange postdate.retry,
     * which leads to the queue of that name; from the exchange postdate.return each goes back to exactly one
     * queue, which its header x-postdate-queue names. */
    TOPOLOGY_RETRY = 16,
    TOPOLOGY_EXIT = 32,
    TOPOLOGY_LAST_HOP = 64, /* with TOPOLOGY_EXIT (transport.h) */
    TOPOLOGY_NATIVE = 128,
    TOPOLOGY_PLUGIN = 256,
    TOPOLOGY_TTL = 512,
    TOPOLOGY_LADDER = 1024, /* names without arguments: transport.c declares the levels of its window */
    TOPOLOGY_OTHER = 2048,  /* names without arguments: declared where they are used */
    TOPOLOGY_READ = 4096,   /* a gateway consumes from the queue, */
    TOPOLOGY_BOUND = 8192,  /* and binds it to exchanges outside the list */
    TOPOLOGY_ALL = 4095,
};
struct topology_item {
    int parts;
    enum topology_kind kind;
    const char *name;              /* of a binding: the queue to which it leads */
    const struct broker_arg *args; /* NULL: none */
    const char *type;              /* of an exchange; of a binding: the exchange where it begins */
    int most;                      /* there may be numbers 1 to most of it; 0: there is one, without */
    bool internal;
};
/* A place in the list: for (struct topology_cursor c = {.parts = …}; topology_next(&c);). */
struct topology_cursor {
    int parts;               /* set by the caller: items with any of these bits, … */
    enum topology_kind kind; /* … of this kind (0: any), … */
    int numbers;             /* … of numbered items 1 to numbers (0: all) */
    const struct topology_item *item;
    int number;                  /* of the item, from 1 on */
    char name[SHARDS_NAME_SIZE]; /* of that number of the item */
};
/* Moves to the next item that the cursor asks for. False: there is none. Any thread. */
bool topology_next(struct topology_cursor *c);
/* Declares the item at the cursor, which is not of TOPOLOGY_LADDER or TOPOLOGY_OTHER. Idempotent. Errors as
 * broker_declare_queue. */
int topology_declare_item(struct broker *b, const struct topology_cursor *c, struct err *e);
/* Declares all items of these parts, of numbered ones 1 to numbers. */
int topology_declare_parts(struct broker *b, int parts, int numbers, struct err *e);

/* The exchange of rabbitmq_delayed_message_exchange that RabbitMQ waits with. The second argument tells
 * Postdate's own type of that name (exchange-type/) that this is not for it: with that one, what is handed
 * over would come back to the intake. */
#define TOPOLOGY_DELAYED_TYPE "x-delayed-message"
extern const struct broker_arg topology_as_headers[];

#define LAST_HOP_PING_HEADER "x-postdate-ping" /* what has this comes to the receipts, and nowhere else */

/* --- The feed of several cells in one vhost: a consistent-hash exchange that gives each message to one of
 * them.
 *
 *   cell exchange (x-consistent-hash) ─┬─ weight 1 ─▶ intake exchange of one cell ─▶ its queue
 *                                      └─ weight 2 ─▶ intake exchange of another … ─▶ its queue
 *
 * The binding key is the weight. What RabbitMQ (3.10 to 4.3, rabbit_exchange_type_consistent_hash.erl) makes
 * of it decides the order of steps here: a second binding of the same two exchanges is stored, but its weight
 * does not count; and taking away either of them takes the destination out of the ring, whatever else is
 * bound. So a cell must never have two, and a weight changes by taking the old binding away first. Meanwhile
 * messages go to the other cells; with none they are unroutable. Which weight is bound AMQP does not say: the
 * caller remembers it, in the database, under a lock.
 *
 * A message that lacks what is hashed goes where all others go that lack it. One thread, that of the
 * connection. */
#define TOPOLOGY_CELL_PLUGIN "rabbitmq_consistent_hash_exchange" /* comes with RabbitMQ */
#define TOPOLOGY_CELL_UNKNOWN (-1)                               /* a weight that nobody remembers */

/* In the order of the words of cell.exchange_by. */
enum topology_cell_by { TOPOLOGY_CELL_BY_KEY, TOPOLOGY_CELL_BY_MESSAGE_ID, TOPOLOGY_CELL_BY_ROUTING_KEY };

struct topology_cell {
    const char *exchange; /* durable */
    enum topology_cell_by by;
    const char *intake_exchange; /* must be there, with its way to a queue */
    int weight;                  /* 0..TOPOLOGY_CELL_WEIGHT_MAX; 0: nothing new comes */
};

/* Declares the exchange alone. Errors as topology_cell_bind. */
int topology_cell_declare(struct broker *b, const struct topology_cell *c, struct err *e);
/* Declares the exchange, and binds with this weight. before: the weight that was bound, 0: none, or
 * TOPOLOGY_CELL_UNKNOWN. ERR_CONFIG: the exchange's type is unknown (the text names the plugin), or it is
 * there with other settings; other errors as broker_declare_exchange, and the connection is as after it. */
int topology_cell_bind(struct broker *b, const struct topology_cell *c, int before, struct err *e);

/* --- What RabbitMQ remembers of how far the database has come: the latest point in its history that a
 * gateway noted, a message in the queue broker_names.history, which keeps one. A database that is restored
 * does not take it back. All on the thread of the connection. */
/* Puts p into the place of what is there; without waiting for RabbitMQ to confirm it. 0 or -1. */
int topology_note_history(struct broker *b, const struct history_point *p, struct err *e);
/* Reads it, and leaves it there. out->lineage is "" where there is none. Takes a second at the most, where
 * another gateway reads it just now. Where the login may not, or there is no such queue, *why says so, else
 * its kind is ERR_NONE. -1: the connection is gone. */
int topology_read_history(struct broker *b, struct history_point *out, struct err *why, struct err *e);

struct topology {
    const char *intake_exchange;        /* fanout, durable */
    const char *delivery_exchange;      /* topic, durable, where it is not there */
    const char *const *route_exchanges; /* fanout, durable, bound to the intake queue */
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
    int queues;         /* intake queues, all that are to be read */
    struct err refused; /* the first exchange that cannot be declared: it has another type, say */
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
/* Does this broker need it? */
bool topology_front_needed(const struct broker *b);

/* All exchanges by which messages come to the intake queue: with the front broker_names.plain first;
 * intake_exchange; those of routes. out has room for route_count + 2. How many. */
size_t topology_sources(const struct broker *b, const struct topology *t, const char **out);

/* Lets messages for that queue go back to it; declares the exchange, too. ERR_NOT_FOUND: there is no such
 * queue, or it is another connection's own; ERR_PERMISSION: its owner does not let us (the connection is dead
 * then). */
int topology_bind_return(struct broker *b, struct bytes queue, struct err *e);

#endif
