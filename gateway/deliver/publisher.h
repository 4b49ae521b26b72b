/* The publishers: publish the messages of a due queue when they are due, and process the confirms.
 *
 * The fast publisher keeps many publishes in flight. The serial one continues only after RabbitMQ has
 * answered, so that one message is to blame if the channel is closed or hangs. The patient one tries
 * destinations that hang, with one message each, and its channel may hang, too. publisher_route
 * decides which publisher gets a message, by exchange_cache.h and destinations.h. */
#ifndef POSTDATE_GATEWAY_DELIVER_PUBLISHER_H
#define POSTDATE_GATEWAY_DELIVER_PUBLISHER_H

#include "amqp/connection/broker.h"
#include "core/base/arena.h"
#include "core/base/buf.h"
#include "gateway/deliver/confirms.h"
#include "gateway/deliver/destinations.h"
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

/* A connection whose channel hung. */
struct publisher_previous {
    struct broker *broker; /* NULL: none */
    struct confirms confirms;
    int64_t since_ms, heard_ms; /* monotonic */
    int64_t others_ms; /* monotonic: RabbitMQ has answered on another connection since; 0: it has not */
};

/* Why a connection, or its channel, ended. */
struct publisher_end {
    const struct err *e;
    int code; /* RabbitMQ's code, if it closed it, perhaps because of a message in flight; 0: it was lost */
};

/* How one publisher differs from the others. Each role has all of these functions, some of which do nothing;
 * except those for a function that the role does not use. */
struct publisher_role {
    const char *name; /* the connection's name in RabbitMQ */
    enum up_bit up;
    size_t queue;          /* offset of its due queue in struct pipeline */
    bool alone;            /* one publish at a time: the next one after RabbitMQ has answered a ping */
    bool judges_exchanges; /* alone, and a closed channel is attributed to the last publish's exchange.
                              Messages in its queue stay there when its connection is lost */
    bool hands_over;       /* publishes to RabbitMQ's delay, long before the due time, not mandatory */

    /* Its connection. */
    int (*prepare)(struct publisher *p, struct broker *b, struct err *e); /* a new one */
    void (*announce)(struct publisher *p, bool ready);                    /* may others send it messages? */
    int (*keep_up)(struct publisher *p, struct err *e); /* in each round, before publishing */
    int (*watch)(struct publisher *p, struct err *e);   /* and after it: checks missing confirms */
    /* That is lost: everything in flight is in doubt. */
    void (*give_up)(struct publisher *p, const struct publisher_end *end);

    /* What it publishes. */
    bool (*has_room)(struct publisher *p);
    bool (*route)(struct publisher *p,
                  struct inflight *h); /* true: publish it here; false: it was passed on or settled */
    enum destination_verdict (*ask)(struct publisher *p, struct inflight *h); /* for publisher_route */
    /* Fills p->properties, and the target if it is not the message's own. 0: the message was settled or
     * passed on; -1: the same, and the channel was closed over it, or the connection is lost. */
    int (*compose)(struct publisher *p, struct inflight *h, struct publish_to *to, struct err *e);
    void (*reject)(struct publisher *p, struct inflight *h, const char *reason); /* it can't be published */

    /* Its outcome. */
    void (*on_ack)(struct publisher *p, struct inflight *h);
    void (*on_nack)(struct publisher *p, struct inflight *h);
    void (*on_pong)(struct publisher *p); /* RabbitMQ has processed all up to p->answered_tag */
    /* Unconfirmed for DESTINATION_STALLED_MS. */
    void (*on_lagging)(struct publisher *p, const struct inflight *h, int64_t now_ms);
    /* The channel hangs: the publisher changes over next. For publisher_end_silence. */
    void (*on_hung)(struct publisher *p, int64_t now_ms);

    /* Messages taken from the queue that wait beside it: for their destination, or until nothing else is in
     * flight. */
    bool (*take_waiting)(struct publisher *p, struct inflight **h); /* true: *h is to be published */
    bool (*has_waiting)(struct publisher *p);                       /* and may be published now */
    void (*release_waiting)(struct publisher *p); /* all: back to the queue, or to the database */
};

/* publish_roles.c */
extern const struct publisher_role publisher_fast, publisher_serial, publisher_patient, publisher_handover;

struct publisher {
    struct runtime *runtime;
    struct pipeline *pipeline;
    struct lease *lease;
    struct handover *handover;
    struct exchange_cache *exchanges;  /* the publishers' */
    struct destinations *destinations; /* theirs, too */
    struct due_queue *queue;
    const struct publisher_role *role;
    /* Of the hand-over publisher: */
    struct last_hop_routes routes;
    int exit_bound;     /* of transport_options: exit queues that get released messages */
    bool exit_left;     /* their bindings were unknown at the last declaration, so they may be missing */
    bool routes_away;   /* RabbitMQ does not answer on that connection */
    int last_hop_queue; /* the exit queue that is bound for RabbitMQ's last hop; 0: none */
    /* Of all: */
    int64_t clock_back_ms;       /* how far the queue's times follow the database's clock set back */
    struct flight_window window; /* how many may be unconfirmed */
    int stalled;                 /* of these, not counted: their queues are slower than the others */
    struct broker *broker;
    bool blocked;          /* RabbitMQ has an alarm, and accepts no messages */
    bool pinging;          /* a ping is not answered yet */
    int64_t pinged_ms;     /* monotonic: the last ping */
    uint64_t ping_tag;     /* of the publish before it */
    uint64_t answered_tag; /* RabbitMQ has processed this publish, and all before */
    int64_t unheard_ms;    /* monotonic: the first publish since heard_ms; 0: none */
    bool answered;         /* anything, on this connection */
    int64_t switched_ms;   /* monotonic: the last try to change over to another connection */
    int64_t heard_ms;      /* monotonic: the last event of any kind, or the connect */
    int64_t parked_ms;     /* monotonic: the last check of all parked messages */
    int64_t looked_ms;     /* monotonic: the last check of unconfirmed messages */
    int declared_epoch;    /* the hand-over publisher: of handover.entry.topology_epoch … */
    int64_t declared_ms;   /* … monotonic: when */
    bool warned;           /* … logged that RabbitMQ refuses it */
    bool refused; /* the hand-over publisher: RabbitMQ closed the channel over a publish, and accepted none
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

/* p's pointers to shared state must be set before. */
void publisher_open(struct publisher *p, const struct publisher_role *role, struct exchange_cache *exchanges,
                    struct destinations *destinations);
void publisher_close(struct publisher *p);
void *publisher_thread(void *publisher);

/* --- for the roles */
/* After this time, the row of an unconfirmed message is released in doubt; or after 1 s, if the messages that
 * have waited so long hold more than 3 MiB. Its confirm is still processed: a ghost waits for it, for at most
 * 120 s, at most 1,000 of a connection. A ghost of a return never counts as delivered. */
#define PUBLISHER_CONFIRM_MS 30000
#define PUBLISHER_AGAIN_MS 1000 /* a message over which a channel hung is tried again after this */
/* Sends a ping. */
int publisher_ping(struct publisher *p, struct err *e);
/* How long a ping has been unanswered, if that is too long; else 0. */
int64_t publisher_silent_ms(const struct publisher *p, int64_t now_ms);
/* RabbitMQ confirmed a delivery, or rejected it (nack). */
void publisher_acked(struct publisher *p, struct inflight *h);
void publisher_nacked(struct publisher *p, struct inflight *h);
/* Their connection is closed: the messages in c are in doubt, and published again; alone, if one of them may
 * have been the reason. Empties c. */
void publisher_doubt_all(struct publisher *p, struct confirms *c, const struct publisher_end *end);
/* The message was certainly not delivered: retries it later, fails it, or expires it at its deadline. */
void publisher_undelivered(struct publisher *p, struct inflight *h, const char *reason);
/* h's exchange is missing or not permitted, for all routing keys. */
void publisher_note_refused(struct publisher *p, const struct inflight *h, const struct err *e);
/* h is no longer in flight; confirmed: RabbitMQ has confirmed it. */
void publisher_left(struct publisher *p, struct inflight *h, bool confirmed);
/* h's destination hangs: it waits in the database, until a time chosen here. */
void publisher_wait(struct publisher *p, struct inflight *h);
/* Called in each round: checks unconfirmed messages. False: RabbitMQ blocks publishers, and need not answer.
 */
bool publisher_check_unconfirmed(struct publisher *p, int64_t now_ms);
/* Is there room in the publish window, besides messages on previous connections? */
bool publisher_window_has_room(struct publisher *p);
/* After a silence: changes over to another connection, or returns -1: this one must be closed. */
int publisher_end_silence(struct publisher *p, int64_t now_ms, int64_t silent_ms, struct err *e);
/* False: h was no longer ours, and was settled or put back; or it is claimed, and too many messages are
 * unsettled: it returns to its queue. A relayed message does not, because it has proofs. */
bool publisher_keep_ours(struct publisher *p, struct inflight *h);
/* Pushes h to a due queue; out of memory: releases it. */
void publisher_send_to(struct publisher *p, struct inflight *h, struct due_queue *to);
/* A role's route, for a delivery. */
bool publisher_route(struct publisher *p, struct inflight *h);
/* Handles h according to v. True: publish it here. */
bool publisher_send_on(struct publisher *p, struct inflight *h, enum destination_verdict v);
/* Is it an answer to a requester that waits without a queue (direct reply-to)? */
bool publisher_is_reply(const struct message *m);
/* A role's compose, for a delivery. */
int publisher_compose(struct publisher *p, struct inflight *h, struct publish_to *to, struct err *e);

#endif
