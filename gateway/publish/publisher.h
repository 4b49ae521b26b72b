/* Publishes a queue's messages on their millisecond and learns what became of them.
 *
 * The fast publisher keeps many publishes in flight. The serial one goes on only after the broker has
 * answered, so that a channel that is closed or held up has one culprit. The patient one tries what stands
 * still, one message a destination, and may be held up itself. See exchange_cache.h and destination_cache.h
 * for which messages go where. */
#ifndef POSTDATE_GATEWAY_PUBLISH_PUBLISHER_H
#define POSTDATE_GATEWAY_PUBLISH_PUBLISHER_H

#include "amqp/connection/broker.h"
#include "core/base/arena.h"
#include "core/base/buf.h"
#include "gateway/pipeline/flight_window.h"
#include "gateway/pipeline/last_hop_routes.h"
#include "gateway/pipeline/lease.h"
#include "gateway/pipeline/pipeline.h"
#include "gateway/publish/confirms.h"
#include "gateway/publish/destination_cache.h"
#include "gateway/publish/exchange_cache.h"
#include "gateway/runtime/log.h"

#define PUBLISHER_PREVIOUS_MOST 4

struct publisher;

struct publish_to {
    struct bytes exchange, routing_key;
};

/* publish_previous.c: a connection that was held up. */
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

/* How one publisher differs from the others. NULL: nothing to do. */
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
    enum destination_verdict (*ask)(struct publisher *p, struct inflight *h);
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
    void (*on_held_up)(struct publisher *p, int64_t now_ms); /* the channel is; it changes over next */

    /* Messages that wait beside the queue. 1: *h is to be published; 0: there are no more. */
    int (*take_parked)(struct publisher *p, struct inflight **h);
    bool (*has_parked)(struct publisher *p); /* that may go now */
    void (*release_parked)(struct publisher *p);
};

/* publish_fast.c, publish_alone.c, publish_handover.c. */
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
    bool pinging;          /* publish_unconfirmed.c: the answer to a ping is to come */
    int64_t pinged_ms;     /* monotonic: the last ping */
    uint64_t ping_tag;     /* of the publish before it */
    uint64_t answered_tag; /* the broker has dealt with this one, and all before */
    int64_t unheard_ms;    /* monotonic: the first publish since heard_ms; 0: none */
    bool answered;         /* anything, on this connection */
    int64_t switched_ms;   /* monotonic: the last try to change over to another connection */
    int64_t heard_ms;      /* monotonic: the last event of any kind, or the connect */
    int64_t parked_ms;     /* monotonic: the last look at all that is parked */
    int64_t looked_ms;     /* monotonic: the last look at what is unconfirmed */
    int declared_epoch;    /* the hand-over publisher: of handover.topology_epoch … */
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

#endif
