/* A thread that works queues off in batches, as the intake and the retry do: with a connection to each server
 * it collects what is there, its owner decides and stores that, and what is stored, or was refused and is in
 * postdate.rejected, is acknowledged. */
#ifndef POSTDATE_GATEWAY_RUNTIME_INBOX_H
#define POSTDATE_GATEWAY_RUNTIME_INBOX_H

#include "amqp/connection/broker.h"
#include "core/base/arena.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/rejected.h"
#include "gateway/runtime/runtime.h"

#define INBOX_BATCH_MAX 1000
#define INBOX_BATCH_BYTES (8u * 1024 * 1024)
/* The most that a broker lets through by default (max_message_size). A body over max_body is read, too: it is
 * rejected, not lost. */
#define INBOX_BODY_MAX (128u * 1024 * 1024)

enum inbox_verdict {
    INBOX_OPEN,
    INBOX_REFUSED, /* reason says why; to be rejected */
    INBOX_LATER,   /* cannot be finished now: its owner offers it again */
    INBOX_DONE,    /* acknowledge it */
};

struct inbox_delivery {
    struct accept_input input; /* views into the batch's arena, or into memory of the owner's */
    uint64_t tag;
    int64_t read_ms; /* monotonic */
    bool redelivered;
    enum inbox_verdict verdict;
    struct bytes reason;        /* of one that was refused: not empty */
    struct bytes exchange, key; /* the intake's: of an accepted message with a key; views */
};

struct inbox;

/* What one owner does unlike the other. */
struct inbox_kind {
    const char *name;                                /* for the log … */
    const char *session;                             /* … for the servers … */
    const char *what;                                /* … and what one delivery is called */
    int (*connect)(struct inbox *in, struct err *e); /* both servers are there: declares and consumes */
    void (*disconnect)(struct inbox *in);            /* nothing of that connection counts any more */
    bool (*skips)(struct inbox *in, const struct broker_event *ev); /* one that is nobody's message */
    /* May this one wait some milliseconds, so that others are stored with it? NULL: none may. */
    bool (*has_time)(struct inbox *in, const struct broker_event *ev);
    /* What was collected, also where that is nothing. 0; 1: connect anew; -1. */
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
    const char *by_type; /* the tag of the consumer of what RabbitMQ's exchange type sent; NULL: none */
    size_t most;         /* of a batch, up to INBOX_BATCH_MAX */
    /* The batch: */
    struct arena arena;
    struct inbox_delivery deliveries[INBOX_BATCH_MAX];
    size_t count, bytes;
    /* The rest is inbox.c's. */
    struct rejected refused[INBOX_BATCH_MAX];
    bool progress;        /* something was acknowledged over this connection */
    bool careful;         /* RabbitMQ ended the last channel over an error of its own */
    size_t careful_count; /* read since, over this connection … */
    int64_t careful_ms;   /* … and when the last one was; monotonic */
    struct log_quota rejected;
    struct rejected_pace pace;
    struct reopened reopened;
    int64_t cure_said_ms; /* monotonic */
};

/* Until the stop. own, runtime and notifier are set. */
void inbox_run(struct inbox *in, const struct inbox_kind *kind);
/* The database session, if there is none that works. -1: not now; it has been said. */
int inbox_open_database(struct inbox *in, struct err *e);
/* Begins to consume. */
int inbox_consume(struct inbox *in, struct err *e);
/* While nothing comes: does the queue still deliver? */
int inbox_check_consumers(struct inbox *in, struct err *e);

void inbox_refuse(struct inbox *in, struct inbox_delivery *d, const char *reason, enum metric why);
/* Publishes the refused ones to postdate.rejected; those confirmed are INBOX_DONE, the others INBOX_LATER. */
void inbox_reject(struct inbox *in);
/* Acknowledges what is done: in one frame if all is, and nothing older is unacknowledged. */
int inbox_acknowledge(struct inbox *in, bool nothing_older, struct err *e);
/* About now; asks the database only where nothing is known of its clock. */
int inbox_now_ms(struct inbox *in, int64_t *out_ms, struct err *e);

#endif
