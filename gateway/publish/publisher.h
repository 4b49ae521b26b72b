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
#include "gateway/pipeline/last_hop_routes.h"
#include "gateway/publish/confirms.h"
#include "gateway/publish/publish_window.h"
#include "gateway/runtime/gateway.h"

/* After so long an unconfirmed message's row is given back, as one in doubt; its confirm still counts. */
#define PUBLISHER_CONFIRM_MS 30000
#define PUBLISHER_AGAIN_MS 1000        /* what holds up a channel is tried again after that */
#define PUBLISHER_RETURN_BODY_MAX 1024 /* the body of a returned message is of no use */
#define PUBLISHER_PREVIOUS_MOST 4
#define PUBLISHER_UNCONFIRMED INFLIGHT_UNCONFIRMED " it: a queue may have no majority of its nodes"

enum publisher_role { PUBLISHER_FAST, PUBLISHER_SERIAL, PUBLISHER_PATIENT, PUBLISHER_HANDOVER };

struct publish_to {
    struct bytes exchange, routing_key;
};

/* publish_previous.c: a connection that was held up. */
struct publisher_previous {
    struct broker *broker; /* NULL: none */
    struct confirms confirms;
    int64_t since_ms, heard_ms; /* monotonic */
};

struct publisher {
    struct gateway *gateway;
    struct due_queue *queue;
    const char *name; /* as the broker shows it */
    enum publisher_role role;
    const struct transport
        *transport; /* the hand-over publisher: publishes at once, the broker waits; else NULL */
    /* Of the hand-over publisher: */
    struct last_hop_routes routes;
    bool routes_away;   /* RabbitMQ does not answer there */
    int last_hop_queue; /* the exit queue that is bound for RabbitMQ's last hop; 0: none */
    /* Of all: */
    struct publish_window window; /* how many may be unconfirmed */
    int stalled;                  /* of these, do not count: their queues are behind the others' */
    struct broker *broker;
    pthread_mutex_t broker_lock; /* guards broker against the watchdog only */
    atomic_int_fast64_t
        busy_since_ms; /* monotonic; a call that may block for ever is going on since; 0: none */
    bool blocked;
    bool pinging;          /* publish_unconfirmed.c: the answer to a ping is to come */
    int64_t pinged_ms;     /* monotonic: the last ping */
    uint64_t ping_tag;     /* of the publish before it */
    uint64_t answered_tag; /* the broker has dealt with this one, and all before */
    int64_t unheard_ms;    /* monotonic: the first publish since heard_ms; 0: none */
    int64_t switched_ms;   /* monotonic: the last try to change over to another connection */
    int64_t heard_ms;      /* monotonic: the last event of any kind, or the connect */
    int64_t parked_ms;     /* monotonic: the last look at all that is parked */
    int64_t looked_ms;     /* monotonic: the last look at what is unconfirmed */
    int declared_epoch;    /* the hand-over publisher: of gateway.delay_topology_epoch … */
    int64_t declared_ms;   /* … monotonic: when */
    bool warned;           /* … said that RabbitMQ refuses it */
    bool refused; /* the hand-over publisher: the broker closed the channel over a publish, and took none
                     since */
    struct confirms confirms;
    struct publisher_previous previous[PUBLISHER_PREVIOUS_MOST];
    struct arena arena;
    struct buf properties;
};

int publisher_open(struct publisher *p, struct gateway *g, enum publisher_role role);
void publisher_close(struct publisher *p);
void *publisher_thread(void *publisher);

/* For the watchdog: shuts the socket of a publisher that is stuck in one call for longer than limit_ms. True
 * if it did. */
bool publisher_unstick(struct publisher *p, int64_t limit_ms);

/* publish_handover.c: the hand-over publisher's part. */
/* Declares what the broker waits with, on a new connection; and again now and then, when something of it may
 * be missing. */
int handover_declare(struct publisher *p, struct broker *b, struct err *e);
int handover_keep_declared(struct publisher *p, struct err *e);
/* Is all there that handing over needs? With handover.last_hop = broker not until its exit queue is bound. */
bool handover_is_ready(const struct publisher *p);
/* What could not be handed over in time is the gateway's to deliver. */
void handover_release_near(struct publisher *p);
/* Fills p->properties and the exchange. 1: publish it; 0: it has been dealt with. */
int handover_compose(struct publisher *p, struct inflight *h, struct publish_to *to, struct err *e);
void handover_acked(struct publisher *p, struct inflight *h);
void handover_refused(struct publisher *p, struct inflight *h); /* nack */
/* The connection is gone: all that is in flight. refusal: why the broker closed the channel over a publish;
 * NULL: it did not. */
void handover_lost(struct publisher *p, const struct err *refusal);

/* publish_route.c: which of the publishers a message is for. */
/* 1: publish it here; 0: it has been dealt with. */
int publisher_route(struct publisher *p, struct inflight *h);
/* The fast publisher's parked ones, as far as they may go now. 1: *h is to be published; 0: there are no
 * more. */
int publisher_take_parked(struct publisher *p, struct inflight **h);

/* publish_unconfirmed.c: what does not confirm. Not for the hand-over publisher. */
/* Called again and again: asks the broker whether it still answers, and looks at what is unconfirmed. -1: the
 * connection is of no use any more. */
int publisher_check_unconfirmed(struct publisher *p, struct err *e);
/* Serial, patient: has the broker dealt with the last publish, so that the next one may go? */
bool publisher_was_answered(struct publisher *p);
/* Has something been unconfirmed for long? */
bool publisher_lags(const struct publisher *p, int64_t now_ms);
/* h is among the confirms now. */
void publisher_sent(struct publisher *p, struct inflight *h);
/* Something came from the broker. */
void publisher_heard(struct publisher *p, const struct broker_event *ev);
/* Before the connection's unconfirmed ones are dealt with: what waited in front of them goes back. */
void publisher_release_parked(struct publisher *p);

/* publish_previous.c: connections that were held up. Not for the hand-over publisher. */
/* Goes on with b. What is unconfirmed stays with the old connection, which is listened to. */
void publisher_change_over(struct publisher *p, struct broker *b);
/* Reads what the old connections say; ends those that have nothing to say any more. Called again and again.
 */
void publisher_listen_to_previous(struct publisher *p);
bool publisher_has_previous(const struct publisher *p);
/* Ends them all: what is unconfirmed there is in doubt. */
void publisher_end_previous(struct publisher *p);

/* publish_connection.c */
/* On a new channel nothing is in flight. */
void publisher_begin_flight(struct publisher *p);
/* A connection for publishing, or NULL. */
struct broker *publisher_dial(struct publisher *p, struct err *e);
/* Drops the old connection, if there is one; nothing is in flight on the new one. */
void publisher_set_broker(struct publisher *p, struct broker *b);
/* The same, and the old connection is the caller's. */
struct broker *publisher_swap_broker(struct publisher *p, struct broker *b);
/* A call that may block for ever begins, or ended. */
void publisher_set_busy(struct publisher *p, bool busy);
/* Sends a ping. */
int publisher_ping(struct publisher *p, struct err *e);

/* publish_outcome.c: what the broker said. */
/* h is not in flight any more; confirmed: the broker answered. */
void publisher_left(struct publisher *p, struct inflight *h, bool confirmed);
/* h's destination stands still: it waits in the database, until then (database ms). */
int64_t publisher_wait_until_ms(struct publisher *p, const struct inflight *h);
void publisher_wait(struct publisher *p, struct inflight *h);
void publisher_on_event(struct publisher *p, const struct broker_event *ev);
/* An ack, nack or return for one of c, which is p->confirms or a previous connection's. Others are ignored.
 */
void publisher_on_answer(struct publisher *p, struct confirms *c, const struct broker_event *ev);
/* Its connection is given up: what is in c is in doubt, and published again. Empties c. */
void publisher_doubt_all(struct publisher *p, struct confirms *c, const struct err *e);
/* The connection is gone: everything in flight is in doubt; e tells whether a publish was to blame. */
void publisher_on_lost(struct publisher *p, const struct err *e);
/* The message was certainly not delivered: try again later, or fail. */
void publisher_refuse(struct publisher *p, struct inflight *h, const char *reason);

#endif
