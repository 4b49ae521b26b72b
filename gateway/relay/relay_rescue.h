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
#include "core/message/publish_headers.h"
#include "gateway/relay/relay.h"
#include "sql/connection/pg.h"
#include "sql/pipeline/relay.h"

/* Of a queue from which RabbitMQ delivers by itself. */
struct last_hop_watch {
    int64_t sent_ms;        /* the latest ping; database time */
    int64_t pinged_ms;      /* monotonic: when that was */
    int64_t waits_since_ms; /* monotonic: since when no ping has come back; 0: none is waited for */
};

/* A connection for pings. */
struct relay_line {
    struct broker *broker;
    bool blocked; /* an alarm */
};

/* Of an exit queue. */
struct exit_watch {
    struct relay_line line; /* its own: a queue without a leader holds up a whole channel */
    int64_t newest_ping_ms; /* that came to anybody; database time */
    int64_t unheard_ms;     /* monotonic: since when this gateway's pings go and none comes; 0: one came */
    int64_t pinged_ms;      /* monotonic: when the latest one was sent */
    int64_t renewed_ms;     /* monotonic: when the consumers were made anew last because of it */
    bool ping_sent;         /* that one; not: RabbitMQ is away, or blocks publishers */
    bool dead, said_dead;
};

struct relay_rescue {
    struct runtime *runtime;
    struct pipeline *pipeline;
    struct lease *lease;
    struct handover *handover;
    struct relay *relay;
    struct pg *pg; /* the caller's, during a look */
    struct arena arena;
    int64_t noted_ms;     /* monotonic */
    int64_t ping_ms;      /* this one came, … */
    int64_t ping_seen_ms; /* … which was noted before this (database time); 0: none is waited for */
    int64_t unknown_ms;   /* database time: when there was a consumer that no gateway had noted */
    struct exit_watch exits[EXIT_QUEUES_MAX];
    int pings;          /* with which exit queue the next ones begin */
    int movable;        /* so many looks have found that what comes out can be moved to several exit queues */
    int64_t surplus_ms; /* monotonic: since when there are more consumers than are known; 0: there are not */
    struct last_hop_watch last_hop[LAST_HOP_QUEUES];
    bool said_stuck, said_undeclared;
    int64_t declared_ms; /* monotonic */
    int64_t history;     /* the number of the point that RabbitMQ was told of last */
};

void relay_rescue_init(struct relay_rescue *rescue, struct relay *relay);
/* There is a new session to the database. */
void relay_rescue_connected(struct relay_rescue *rescue);
/* Once a second, whenever it is called: notes what this gateway took, and learns from all notes what is lost
 * (handover.h: rescue_before_ms). -1: the database did not answer. */
int relay_rescue_look(struct relay_rescue *rescue, struct pg *pg, struct err *e);
/* Now and then: what the start declared is there, also when somebody has deleted it. */
void relay_rescue_declare(struct relay_rescue *rescue, struct pg *pg);
void relay_rescue_close(struct relay_rescue *rescue);

/* relay_ping.c */
#define RELAY_LINE 1 /* for what is of no exit queue */
/* That of an exit queue, for pings and to look at queues, which may take RabbitMQ a while to answer: opened
 * where need be, and what came is read. NULL: it may not be used. A connection that has published is not read
 * from during an alarm, so nothing is asked of it then. It is not the relay's, which goes on acknowledging.
 */
struct broker *relay_line(struct relay_rescue *rescue, int number, struct err *e);
/* After an error: drops it when it is dead. */
void relay_line_check(struct relay_rescue *rescue, int number, const struct err *e);
/* By an exit queue, or, with the number of one of RabbitMQ's last hop, by that. False: it was not sent. */
bool relay_ping_exit(struct relay_rescue *rescue, int number, int64_t now_ms);
bool relay_ping_last_hop(struct relay_rescue *rescue, int number, int64_t now_ms);

/* relay_exit.c: the exit queues, each for itself. */
void relay_exit_ping(struct relay_rescue *rescue, int64_t now_ms);
/* What the database says of them: new ones are declared and read, and as many bound as are wanted. -1: the
 * database did not answer. */
int relay_exit_follow(struct relay_rescue *rescue, const struct relay_marks *m, struct err *e);
/* Which of them are silent or dead. True: all are dead. */
bool relay_exit_watch(struct relay_rescue *rescue, const struct relay_marks *m);
/* What was sent before this has been taken from all that are not dead; 0: unknown. */
int64_t relay_exit_taken_ms(const struct relay_rescue *rescue, const struct relay_marks *m);
/* Are all consumers those that gateways have noted? */
bool relay_exit_all_known(struct relay_rescue *rescue, const struct relay_marks *m);

#endif
