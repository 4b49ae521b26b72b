/* What Postdate declares in RabbitMQ: exchange `postdate` -> quorum queue `postdate.intake` (expired and
 * over-delivered messages dead-letter to `postdate.intake.expired`, which is consumed too),
 * `postdate.intake.delayed`, which RabbitMQ's exchange type fills (exchange-type/), `postdate.delivery`,
 * `postdate.rejected`, and the exchanges under [route]. From RabbitMQ 4.4 on also the front of the intake
 * queue (below), and with intake.queues further intake queues (topology_shards.h). Idempotent; safe from
 * several gateways at once. */
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
    /* For messages that consumers rejected: their queues dead-letter to the internal exchange postdate.retry,
     * which is bound to the queue of that name; through the exchange postdate.return each returns to exactly
     * one queue, by its header x-postdate-queue. */
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
    const char *name;              /* of a binding: its queue */
    const struct broker_arg *args; /* NULL: none */
    const char *type;              /* of an exchange; of a binding: its source exchange */
    int most;                      /* numbered items exist from 1 to most; 0: a single item, without number */
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
/* Advances to the next matching item. False: there is none. Any thread. */
bool topology_next(struct topology_cursor *c);
/* Declares the item at the cursor, which is not of TOPOLOGY_LADDER or TOPOLOGY_OTHER. Idempotent. Errors as
 * broker_declare_queue. */
int topology_declare_item(struct broker *b, const struct topology_cursor *c, struct err *e);
/* Declares all items of these parts, of numbered ones 1 to numbers. */
int topology_declare_parts(struct broker *b, int parts, int numbers, struct err *e);

/* The exchange of rabbitmq_delayed_message_exchange for hand-over. By the second argument, Postdate's own
 * type of that name (exchange-type/) refuses it: with that type, handed-over messages would return to the
 * intake. */
#define TOPOLOGY_DELAYED_TYPE "x-delayed-message"
extern const struct broker_arg topology_as_headers[];

#define LAST_HOP_PING_HEADER                                                                                 \
    "x-postdate-ping" /* messages with this header are routed to the receipts only                           \
                       */

/* --- The feed of several cells in one vhost: a consistent-hash exchange that routes each message to one of
 * them.
 *
 *   cell exchange (x-consistent-hash) ─┬─ weight 1 ─▶ intake exchange of one cell ─▶ its queue
 *                                      └─ weight 2 ─▶ intake exchange of another … ─▶ its queue
 *
 * The binding key is the weight. RabbitMQ's behaviour (3.10 to 4.3, rabbit_exchange_type_consistent_hash.erl)
 * decides the order of steps: a second binding of the same two exchanges is stored, but its weight is
 * ignored; and removing either of them removes the destination from the ring. So a cell must never have two
 * bindings, and a weight is changed by removing the old binding first. Meanwhile messages are routed to the
 * other cells; without any, they are unroutable. AMQP cannot read the bound weight: the caller records it in
 * the database, under a lock.
 *
 * All messages without the hashed value are routed to the same cell. One thread, that of the connection. */
#define TOPOLOGY_CELL_PLUGIN "rabbitmq_consistent_hash_exchange" /* comes with RabbitMQ */
#define TOPOLOGY_CELL_UNKNOWN (-1)                               /* a weight that is not recorded */

/* In the order of the values of cell.exchange_by. */
enum topology_cell_by { TOPOLOGY_CELL_BY_KEY, TOPOLOGY_CELL_BY_MESSAGE_ID, TOPOLOGY_CELL_BY_ROUTING_KEY };

struct topology_cell {
    const char *exchange; /* durable */
    enum topology_cell_by by;
    const char *intake_exchange; /* must exist, bound to a queue */
    int weight;                  /* 0..TOPOLOGY_CELL_WEIGHT_MAX; 0: no new messages */
};

/* Declares the exchange alone. Errors as topology_cell_bind. */
int topology_cell_declare(struct broker *b, const struct topology_cell *c, struct err *e);
/* Declares the exchange, and binds with this weight. before: the weight that was bound, 0: none, or
 * TOPOLOGY_CELL_UNKNOWN. ERR_CONFIG: the exchange's type is unknown (the text names the plugin), or it exists
 * with other settings; other errors and the connection's state as after broker_declare_exchange. */
int topology_cell_bind(struct broker *b, const struct topology_cell *c, int before, struct err *e);

/* --- The latest point in the database's history, stored in RabbitMQ: a message in the queue
 * broker_names.history, which keeps one. A restore of the database does not change it. Thread: that of the
 * connection. */
/* Replaces the stored point by p, without waiting for a confirm. 0 or -1. */
int topology_note_history(struct broker *b, const struct history_point *p, struct err *e);
/* Reads the point, and leaves it there. out->lineage is "" if there is none. Takes at most a second, if
 * another gateway is reading it. *why: the login has no right, or the queue is missing; else its kind is
 * ERR_NONE. -1: the connection is lost. */
int topology_read_history(struct broker *b, struct history_point *out, struct err *why, struct err *e);

struct topology {
    const char *intake_exchange;        /* fanout, durable */
    const char *delivery_exchange;      /* topic, durable; declared if missing */
    const char *const *route_exchanges; /* fanout, durable, bound to the intake queue */
    size_t route_count;
    /* With several intake queues, as for shards_run.h: the step to do, and the record. */
    enum topology_step { TOPOLOGY_DIRECT, TOPOLOGY_PREPARE, TOPOLOGY_NARROW, TOPOLOGY_WIDEN } step;
    int queues, most; /* 0: as 1 */
    bool unknown;     /* the number of bound queues is unknown: a new database */
    size_t way;       /* of topology_intake_ways */
    const char *const *moved;
    size_t moved_count;
};

#define TOPOLOGY_WAYS 4
/* random, routing-key, message-id, key: how the intake queue of a message is chosen, if there are several. */
extern const struct shards_way topology_intake_ways[TOPOLOGY_WAYS];

struct topology_found {
    int queues; /* number of intake queues to consume */
    /* the first exchange that cannot be declared, for example because it has another type */
    struct err refused;
};

/* Declares all of it. If RabbitMQ refuses an exchange, out->refused is filled, and all others are declared.
 */
int topology_declare(struct broker *b, const struct topology *t, struct topology_found *out, struct err *e);

/* The front: exchanges and a queue in front of the intake queue, for RabbitMQ 4.4 and later.
 *
 * A quorum queue there delays a message with a number in x-opt-delivery-time until that time: the gateway
 * would not get it before. In the version that was tested, a far too large number stopped the queue for good.
 * No argument or policy disables this. A classic queue ignores the header, so messages with it are routed
 * through one:
 *
 *   intake exchanges ─▶ postdate.sort ─┬─ has x-opt-delivery-time ─▶ <intake queue>.timed, classic
 *                                      └─ has not: postdate.plain ─▶ the intake queue, quorum */
/* Does this broker need it? */
bool topology_front_needed(const struct broker *b);

/* All exchanges through which messages are routed to the intake queue: with the front broker_names.plain
 * first; intake_exchange; those of routes. out has room for route_count + 2. How many. */
size_t topology_sources(const struct broker *b, const struct topology *t, const char **out);

/* Binds a consumers' queue for returns; declares the exchange, too. ERR_NOT_FOUND: the queue is missing, or
 * exclusive to another connection; ERR_PERMISSION: not permitted (the connection is dead then). */
int topology_bind_return(struct broker *b, struct bytes queue, struct err *e);

#endif
