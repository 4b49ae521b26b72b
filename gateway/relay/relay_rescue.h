/* What RabbitMQ has lost of what it waited with, and how a gateway knows.
 *
 * A row that RabbitMQ holds and that is overdue by handover.grace is claimed like any other, once everybody
 * has had the chance to deliver it. Each gateway sends a ping through the exit queue now and then, and what
 * was there before a ping that came has been taken; where RabbitMQ itself delivers, pings go that way, too.
 * And each gateway notes in the database up to which due time all that it took is settled. One without a
 * database notes nothing, but its consumers are still on the queue: while there are more than the notes tell
 * of, nothing is rescued.
 *
 * By the same pings it is known when an exit queue stands still or is dead, and when RabbitMQ has forgotten
 * the consumers. Used by one thread, the look-up's. */
#ifndef POSTDATE_GATEWAY_RELAY_RELAY_RESCUE_H
#define POSTDATE_GATEWAY_RELAY_RELAY_RESCUE_H

#include "amqp/connection/broker.h"
#include "core/base/arena.h"
#include "core/message/last_hop.h"
#include "gateway/relay/relay.h"
#include "sql/connection/pg.h"

/* Of a queue from which RabbitMQ delivers by itself. */
struct last_hop_watch {
    int64_t sent_ms;        /* the latest ping; database time */
    int64_t pinged_ms;      /* monotonic: when that was */
    int64_t waits_since_ms; /* monotonic: since when no ping has come back; 0: none is waited for */
};

struct relay_rescue {
    struct runtime *runtime;
    struct pipeline *pipeline;
    struct lease *lease;
    struct handover *handover;
    struct relay *relay;
    struct pg *pg;         /* the caller's, during a look */
    struct broker *broker; /* for pings, and to look at the exit queue, which may take it a while to answer */
    bool blocked;          /* an alarm */
    struct arena arena;
    int64_t noted_ms;       /* monotonic */
    int64_t ping_ms;        /* this one came, … */
    int64_t ping_seen_ms;   /* … which was noted before this (database time); 0: none is waited for */
    int64_t unknown_ms;     /* database time: when there was a consumer that no gateway had noted */
    int64_t renewed_ms;     /* monotonic: when the consumers were made anew last */
    int64_t newest_ping_ms; /* that came to anybody; database time */
    int64_t unheard_ms;     /* monotonic: since when this gateway's pings go and none comes; 0: one came */
    int64_t pinged_ms;      /* monotonic: when the latest one was sent */
    bool ping_sent;         /* that one; not: RabbitMQ is away, or blocks publishers */
    bool said_dead;
    int64_t surplus_ms; /* monotonic: since when there are more consumers than are known; 0: there are not */
    struct last_hop_watch last_hop[LAST_HOP_QUEUES];
    bool said_stuck, said_receipts, said_undeclared;
    int64_t declared_ms; /* monotonic */
};

void relay_rescue_init(struct relay_rescue *rescue, struct relay *relay);
/* There is a new session to the database. */
void relay_rescue_connected(struct relay_rescue *rescue);
/* Once a second, whenever it is called: notes what this gateway took, and learns from all notes what is lost
 * (handover.h: rescue_before_ms). -1: the database did not answer. */
int relay_rescue_look(struct relay_rescue *rescue, struct pg *pg, struct err *e);
/* Looks for the receipts where the relay has asked for them. */
void relay_rescue_find_receipts(struct relay_rescue *rescue);
/* Now and then: what the start declared is there, also when somebody has deleted it. */
void relay_rescue_declare(struct relay_rescue *rescue, struct pg *pg);
void relay_rescue_close(struct relay_rescue *rescue);

#endif
