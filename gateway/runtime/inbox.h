/* The common loop of the intake and the retry, which process queues in batches: with a connection to each
 * server, it collects available deliveries, its owner decides and stores them, and deliveries that are
 * stored, or published to postdate.rejected, are acknowledged. */
#ifndef POSTDATE_GATEWAY_RUNTIME_INBOX_H
#define POSTDATE_GATEWAY_RUNTIME_INBOX_H

#include "amqp/connection/broker.h"
#include "core/base/arena.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/rejected.h"
#include "gateway/runtime/runtime.h"

#define INBOX_BATCH_MAX 1000
#define INBOX_BATCH_BYTES (8u * 1024 * 1024)
/* RabbitMQ's default max_message_size. Bodies over max_body are read, too, so that they can be rejected
 * without being lost. */
#define INBOX_BODY_MAX (128u * 1024 * 1024)

enum inbox_verdict {
    INBOX_OPEN,
    INBOX_REJECTED, /* to be published to postdate.rejected, with `reason` */
    INBOX_LATER,    /* cannot be finished now: its owner tries it again */
    INBOX_DONE,     /* to be acknowledged */
};

struct inbox_delivery {
    struct accept_input input; /* views into the batch's arena, or into the owner's memory */
    uint64_t tag;
    int64_t read_ms; /* monotonic */
    bool redelivered;
    enum inbox_verdict verdict;
    struct bytes reason;        /* of INBOX_REJECTED: not empty */
    struct bytes exchange, key; /* for the intake: of an accepted message with a key; views */
};

struct inbox;

/* How the owners differ. */
struct inbox_kind {
    const char *name;                                /* in log lines … */
    const char *session;                             /* … as the session's name at the servers … */
    const char *what;                                /* … and what a delivery is called in log lines */
    int (*connect)(struct inbox *in, struct err *e); /* both servers are connected: declares and consumes */
    void (*disconnect)(struct inbox *in);            /* the connection is lost: drops its state */
    bool (*skips)(struct inbox *in,
                  const struct broker_event *ev); /* true: an internal delivery, not a message */
    /* May this delivery wait some milliseconds to be stored together with others? NULL: none may. */
    bool (*has_time)(struct inbox *in, const struct broker_event *ev);
    /* Processes the collected batch, which may be empty. May set connects_anew. */
    int (*work)(struct inbox *in, struct err *e);
};

struct inbox { /* one thread's */
    struct runtime *runtime;
    struct notifier notifier; /* the supervisor opens it */
    const struct inbox_kind *kind;
    void *own; /* its owner */
    struct pg *pg;
    struct broker *broker;
    /* connect sets these: */
    const struct broker_consumer *consumers;
    size_t consumer_count;
    uint16_t prefetch;
    const char *queue;   /* the first of them */
    const char *by_type; /* the tag of the consumer for messages of RabbitMQ's exchange type; NULL: none */
    size_t most;         /* of a batch, up to INBOX_BATCH_MAX */
    /* The batch: */
    struct arena arena;
    struct inbox_delivery deliveries[INBOX_BATCH_MAX];
    size_t count, bytes;
    bool connects_anew; /* set by work: this connection is to end */
    /* Private to inbox.c. */
    struct rejected refused[INBOX_BATCH_MAX];
    bool progress;        /* something was acknowledged over this connection */
    bool careful;         /* RabbitMQ closed the last channel because of an internal error */
    size_t careful_count; /* deliveries read since, on this connection … */
    int64_t careful_ms;   /* … and when the last was; monotonic */
    struct log_quota rejected;
    struct rejected_pace pace;
    struct reopened reopened;
    int64_t cure_said_ms; /* monotonic */
};

/* Runs until the gateway stops. own, runtime and notifier must be set. */
void inbox_run(struct inbox *in, const struct inbox_kind *kind);
/* Opens the database session if none works. -1: not possible now; it was logged. */
int inbox_open_database(struct inbox *in, struct err *e);
/* Starts consuming. */
int inbox_consume(struct inbox *in, struct err *e);
/* While nothing is delivered: checks that the queues still deliver (broker_check_consumers). */
int inbox_check_consumers(struct inbox *in, struct err *e);

void inbox_mark_rejected(struct inbox *in, struct inbox_delivery *d, const char *reason, enum metric why);
/* Publishes the INBOX_REJECTED deliveries to postdate.rejected; confirmed ones become INBOX_DONE, the others
 * INBOX_LATER. */
void inbox_reject(struct inbox *in);
/* Acknowledges the INBOX_DONE deliveries: in one frame if all are done and nothing older is unacknowledged.
 */
int inbox_acknowledge(struct inbox *in, bool nothing_older, struct err *e);

#endif
