/* Storing accepted messages: one transaction per batch, by COPY. */
#ifndef POSTDATE_SQL_PIPELINE_STORE_H
#define POSTDATE_SQL_PIPELINE_STORE_H

#include "core/base/err.h"
#include "core/message/message.h"
#include "sql/connection/pg.h"
#include "sql/pipeline/locked.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum store_result {
    STORE_ACCEPTED,  /* a row of its own was stored */
    STORE_KEPT,      /* on_conflict keep: the key names a live message; existing_id */
    STORE_DUPLICATE, /* a redelivery of a message stored before; existing_id */
    STORE_CONFLICT,  /* on_conflict reject, or replace of a message that is already claimed: reject it */
    STORE_REPLACED,  /* a later item of the same batch replaced it before it was stored: existing_id */
    STORE_SKIPPED,   /* left out by store_extra.before */
    STORE_WAITS,     /* another open transaction has its key, or its day is locked: store it again later */
};

struct store_item {
    /* In. The caller sets the message's id from due_ms; store_accept may change both, and puts the number of
     * the cell, if any, into the id. */
    struct message message;
    struct bytes message_id; /* AMQP message-id for redelivery dedupe; len 0: none */
    bool redelivered;
    bool due_is_settled; /* store_accept's; false before the first call */

    /* Out. */
    enum store_result result;
    struct message_id existing_id;
    /* Why it waits. day_locked: the partition of its day is locked, or an earlier message with the same key
     * waits for that. untried: other messages of the batch met locks; whether it would meet one is unknown.
     */
    bool day_locked, untried;
    bool handed; /* stored as handed over, which the caller must do next: struct store_handover */
};

/* Messages to hand over at once: those of the batch without key or deadline that are due by until_ms, but not
 * within least_ahead_ms, are stored as `handed`, in one handing (handing.h). None are if the instance was
 * taken over. */
struct store_handover {
    struct message_id handing; /* its id: random, new for each batch */
    int32_t instance;          /* the caller's */
    int64_t until_ms, least_ahead_ms;
    int64_t grace_ms; /* after this time past its due time, a message is treated as lost by RabbitMQ */
    size_t most;
    bool tried; /* out: although store_accept failed, it may have been committed; messages marked as handed
                   stay so when it is repeated. Set to false before the first call */
};

/* Further work in the transaction that stores the batch, committed with the batch or not at all. Either
 * function may be NULL. */
struct store_extra {
    /* Before keys are checked; may set an item's result to STORE_SKIPPED, which leaves it out. */
    int (*before)(void *ctx, struct pg *c, struct err *e);
    /* When every item has its result, before the commit. */
    int (*after)(void *ctx, struct pg *c, struct err *e);
    void *ctx;
};

/* An AMQP consumer session, whose unacknowledged messages RabbitMQ may redeliver to other gateways. Owned and
 * used by the caller's thread. */
struct store_session {
    int64_t name;              /* random, not 0; set by the caller, as the next */
    size_t unacknowledged_max; /* the most deliveries that it can have unacknowledged */
    int64_t redelivery;        /* the number of stored redeliveries at this session's last check */
    size_t suspect;            /* how many of the next messages may have been stored by others … */
    int64_t suspect_since;     /* … after that redelivery */
};

/* Days that the last batches found locked, so that the next one does not wait for them. Owned by the caller;
 * all zero at first. */
struct store_locks {
    struct locked_days days;
    int64_t read_ms; /* monotonic */
};

struct store_options {
    bool keeps_ids; /* ids do not get the number of the cell: the caller must be able to make the same ids
                       again */
    /* how long a key stays taken after the delivery of its message ([keys] key_memory) */
    int64_t key_memory_ms;
    int key_wait_ms; /* how long to wait for a key that another open transaction has; 0: some ms */
    struct store_session *session;   /* NULL: not from AMQP */
    const struct store_extra *extra; /* NULL: nothing more */
    struct store_locks *locks;       /* NULL: each batch finds locked days itself */
    struct store_handover *handover; /* NULL: nothing is handed over at once */
};

/* A delay counts from the database's clock when the transaction begins. The caller has the message before
 * that, so the delay is never too short, even if a machine was suspended or a clock set in between. Due times
 * before that time become that time. A repeated call keeps the due time and id of the first one.
 *
 * Stores a batch: all of it is committed (synchronously) when 0 is returned, none of it on -1. Items get
 * their result. ERR_AWAY and ERR_BUSY: try again; ERR_REJECT: PostgreSQL rejects something in the batch:
 * store the items one by one. */
int store_accept(struct pg *c, const struct store_options *o, struct store_item *items, size_t count,
                 struct err *e);

/* now() of the last transaction of store_accept on c, which is created_at of the stored messages: ms since
 * 1970 rounded up. */
int64_t store_begun_ms(const struct pg *c);

/* Before the session consumes its first message. */
int store_session_begin(struct pg *c, struct store_session *s, struct err *e);

/* Prepares c for storing messages from RabbitMQ: PostgreSQL terminates the session if it leaves a transaction
 * open for 2.5 s, for example because its process was stopped, since other sessions wait for it (store.c).
 * Thread: c's. */
int store_prepare_session(struct pg *c, struct err *e);

/* After a commit whose answer was lost or unclear: 1: the row exists, and is durable (by a further
 * synchronous commit, which covers the earlier one); 0: it does not exist; -1: error. */
int store_was_committed(struct pg *c, struct message_id id, struct err *e);

/* Wakes gateways that sleep: a NOTIFY without payload, in a transaction of its own. For writers outside the
 * gateway, when something due within about a second was committed. It is a hint, and errors are ignored:
 * gateways check at least every half lead anyway. Not sent within a transaction, or if PostgreSQL's NOTIFY
 * queue is more than half full. */
void store_wake(struct pg *c);

/* Deletes the records of batches that RabbitMQ can no longer redeliver. unacknowledged: the most
 * unacknowledged deliveries of a session; uptime_ms: how long the caller has been consuming. Every ten
 * seconds or so. */
int store_prune_batches(struct pg *c, int64_t unacknowledged, int64_t uptime_ms, struct err *e);

/* The server's clock in µs since 1970. */
int store_clock(struct pg *c, int64_t *out_us, struct err *e);

#endif
