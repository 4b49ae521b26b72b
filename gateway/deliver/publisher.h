/* Publishes a queue's messages on their millisecond and learns what became of them.
 *
 * The fast publisher keeps many publishes in flight. The serial one goes on only after the broker has
 * answered, so that a channel that is closed or held up has one culprit. The patient one tries what stands
 * still, one message a destination, and may be held up itself. See exchange_cache.h and destination_cache.h
 * for which messages go where. */
#ifndef POSTDATE_GATEWAY_DELIVER_PUBLISHER_H
#define POSTDATE_GATEWAY_DELIVER_PUBLISHER_H

#include "amqp/connection/broker.h"
#include "core/base/arena.h"
#include "core/base/buf.h"
#include "gateway/deliver/confirms.h"
#include "gateway/deliver/destination_cache.h"
#include "gateway/deliver/exchange_cache.h"
#include "gateway/deliver/flight_window.h"
#include "gateway/deliver/last_hop_routes.h"
#include "gateway/deliver/lease.h"
#include "gateway/deliver/pipeline.h"
#include "gateway/runtime/log.h"

#define PUBLISHER_PREVIOUS_MOST 4

struct publisher;

struct publish_to {
    struct bytes exchange, routing_key;
};

/* A connection that was held up. */
struct publisher_previous {
    struct broker *broker; /* NULL: none */
    struct confirms confirms;
    int64_t since_ms, heard_ms; /* monotonic */
    int64_t others_ms;          /* monotonic: RabbitMQ answers on another one since; 0: it does not */
};

/* Why a connection, or its channel, ended. */
struct publisher_end {
    const struct err *e;
    int code; /* with which RabbitMQ closed it: perhaps over one of those in flight; 0: it was lost */
};

/* How one publisher differs from the others. Each has all of these: where there is nothing to do, one that
 * does nothing. But what is for a function that a role does not use, it has not. */
struct publisher_role {
    const char *name; /* as the broker shows its connection */
    enum up_bit up;
    size_t queue;          /* where its due queue lies in struct pipeline */
    bool alone;            /* one publish at a time: the next one after the broker answered a ping */
    bool judges_exchanges; /* alone, and a closed channel tells about the last publish's exchange. What waits
                              in front of it goes on waiting when its connection is lost */
    bool hands_over;       /* publishes long before due, not mandatory: the broker is to wait */

    /* Its connection. */
    int (*prepare)(struct publisher *p, struct broker *b, struct err *e); /* a new one */
    void (*announce)(struct publisher *p, bool ready);                    /* may others send it messages? */
    int (*keep_up)(struct publisher *p, struct err *e); /* again and again, before publishing */
    int (*watch)(struct publisher *p, struct err *e);   /* and after it: what does not confirm */
    /* That is lost: everything in flight is in doubt. */
    void (*give_up)(struct publisher *p, const struct publisher_end *end);

    /* What it publishes. */
    bool (*has_room)(struct publisher *p);
    bool (*route)(struct publisher *p, struct inflight *h); /* true: publish it here; else it is dealt with */
    enum destination_verdict (*ask)(struct publisher *p, struct inflight *h); /* for publisher_route */
    /* Fills p->properties, and where to publish to where that is not the message's own. 0: it has been dealt
     * with; -1: and the channel was closed over it, or the connection is lost. */
    int (*compose)(struct publisher *p, struct inflight *h, struct publish_to *to, struct err *e);
    void (*reject)(struct publisher *p, struct inflight *h, const char *reason); /* it can't be published */

    /* What became of it. */
    void (*on_ack)(struct publisher *p, struct inflight *h);
    void (*on_nack)(struct publisher *p, struct inflight *h);
    void (*on_pong)(struct publisher *p); /* it has dealt with all up to p->answered_tag */
    /* Unconfirmed for DESTINATION_STALLED_MS. */
    void (*on_lagging)(struct publisher *p, const struct inflight *h, int64_t now_ms);
    /* The channel is held up: it changes over next. For publisher_end_silence. */
    void (*on_held_up)(struct publisher *p, int64_t now_ms);

    /* Messages that were taken from the queue and wait beside it: for their destination, or until nothing
     * else is in flight. */
    bool (*take_waiting)(struct publisher *p, struct inflight **h); /* true: *h is to be published */
    bool (*has_waiting)(struct publisher *p);                       /* that may go now */
    void (*release_waiting)(struct publisher *p); /* all: back to the queue, or to the database */
};

/* publish_roles.c */
extern const struct publisher_role publisher_fast, publisher_serial, publisher_patient, publisher_handover;

struct publisher {
    struct runtime *runtime;
    struct pipeline *pipeline;
    struct lease *lease;
    struct handover *handover;
    struct exchange_cache *exchanges;       /* the publishers' */
    struct destination_cache *destinations; /* theirs, too */
    struct due_queue *queue;
    const struct publisher_role *role;
    /* Of the hand-over publisher: */
    struct last_hop_routes routes;
    int exit_bound;     /* of transport_options: exit queues that get what comes out */
    bool exit_left;     /* nobody knew when they were bound last, so perhaps they are not */
    bool routes_away;   /* RabbitMQ does not answer there */
    int last_hop_queue; /* the exit queue that is bound for RabbitMQ's last hop; 0: none */
    /* Of all: */
    int64_t clock_back_ms;       /* so far the queue has followed the database's clock back */
    struct flight_window window; /* how many may be unconfirmed */
    int stalled;                 /* of these, do not count: their queues are behind the others' */
    struct broker *broker;
    bool blocked;
    bool pinging;          /* the answer to a ping is to come */
    int64_t pinged_ms;     /* monotonic: the last ping */
    uint64_t ping_tag;     /* of the publish before it */
    uint64_t answered_tag; /* the broker has dealt with this one, and all before */
    int64_t unheard_ms;    /* monotonic: the first publish since heard_ms; 0: none */
    bool answered;         /* anything, on this connection */
    int64_t switched_ms;   /* monotonic: the last try to change over to another connection */
    int64_t heard_ms;      /* monotonic: the last event of any kind, or the connect */
    int64_t parked_ms;     /* monotonic: the last look at all that is parked */
    int64_t looked_ms;     /* monotonic: the last look at what is unconfirmed */
    int declared_epoch;    /* the hand-over publisher: of handover.entry.topology_epoch … */
    int64_t declared_ms;   /* … monotonic: when */
    bool warned;           /* … said that RabbitMQ refuses it */
    bool refused; /* the hand-over publisher: the broker closed the channel over a publish, and took none
                     since */
    struct reopened reopened;
    bool got_on; /* RabbitMQ closed the connection over a publish, and answered others before */
    /* The serial publisher: */
    struct inflight *apart; /* waits until nothing else is in flight; NULL: none */
    struct log_quota culprits;
    struct confirms confirms;
    struct publisher_previous previous[PUBLISHER_PREVIOUS_MOST];
    struct arena arena;
    struct buf properties;
};

/* p has what it shares with other threads already. */
void publisher_open(struct publisher *p, const struct publisher_role *role, struct exchange_cache *exchanges,
                    struct destination_cache *destinations);
void publisher_close(struct publisher *p);
void *publisher_thread(void *publisher);

/* --- for the roles */
/* After so long an unconfirmed message's row is given back, as one in doubt; its confirm still counts. */
#define PUBLISHER_CONFIRM_MS 30000
#define PUBLISHER_AGAIN_MS 1000 /* what holds up a channel is tried again after that */
/* Sends a ping. */
int publisher_ping(struct publisher *p, struct err *e);
/* For how long a ping has not been answered, where that is too long; else 0. */
int64_t publisher_silent_ms(const struct publisher *p, int64_t now_ms);
/* The broker took a delivery, or did not. */
void publisher_acked(struct publisher *p, struct inflight *h);
void publisher_nacked(struct publisher *p, struct inflight *h);
/* Their connection is given up: what is in c is in doubt, and published again; alone, where one of them may
 * have been the reason. Empties c. */
void publisher_doubt_all(struct publisher *p, struct confirms *c, const struct publisher_end *end);
/* The message was certainly not delivered: try again later, or fail. */
void publisher_refuse(struct publisher *p, struct inflight *h, const char *reason);
/* Where h goes is missing or forbidden, whatever its routing key. */
void publisher_note_refused(struct publisher *p, const struct inflight *h, const struct err *e);
/* h is not in flight any more; confirmed: the broker answered. */
void publisher_left(struct publisher *p, struct inflight *h, bool confirmed);
/* h's destination stands still: it waits in the database, until then (database ms). */
void publisher_wait(struct publisher *p, struct inflight *h);
/* Called again and again: looks at what is unconfirmed. False: the broker is blocked, and need not answer. */
bool publisher_check_unconfirmed(struct publisher *p, int64_t now_ms);
/* Is there room in the publish window, beside what is left on previous connections? */
bool publisher_window_has_room(struct publisher *p);
/* Then: changes over to another connection, or (-1) this one is of no use any more. */
int publisher_end_silence(struct publisher *p, int64_t now_ms, int64_t silent_ms, struct err *e);
/* False: h was not ours any more, and has been dealt with; or it was claimed, and too much is not settled: it
 * goes back to its queue. What was relayed does not, for it has proofs. */
bool publisher_keep_ours(struct publisher *p, struct inflight *h);
/* To a due queue; without memory for that it is released. */
void publisher_send_to(struct publisher *p, struct inflight *h, struct due_queue *to);
/* A role's route, for a delivery. */
bool publisher_route(struct publisher *p, struct inflight *h);
/* The publisher is to deal with h as v says. True: it publishes it itself. */
bool publisher_send_on(struct publisher *p, struct inflight *h, enum destination_verdict v);
/* Is it an answer to a requester that waits without a queue (direct reply-to)? */
bool publisher_is_reply(const struct message *m);
/* A role's compose, for a delivery. */
int publisher_compose(struct publisher *p, struct inflight *h, struct publish_to *to, struct err *e);

#endif
