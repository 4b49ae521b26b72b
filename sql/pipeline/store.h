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
    STORE_CONFLICT,  /* on_conflict reject, or replace of one that is already claimed: refuse it */
    STORE_REPLACED,  /* a later item of the same batch replaced it before it was stored: existing_id */
    STORE_SKIPPED,   /* left out by store_extra.before */
    STORE_WAITS, /* somebody's open transaction holds its key, or its day is locked: offer it again later */
};

struct store_item {
    struct message message;  /* id is set by the caller, from due_ms; store_accept may move both, and
                               marks the id with the number of the cell, if the database has one */
    bool due_is_settled;     /* in: false; set when store_accept has seen it */
    struct bytes message_id; /* AMQP message-id for redelivery dedupe; len 0: none */
    bool redelivered;
    enum store_result result; /* out */
    bool day_locked; /* out: it waits because somebody has locked the partition of its day, or because an
                        earlier one of the same key does */
    bool untried; /* out: it waits because others of the batch met locks; nobody knows whether it meets one */
    struct message_id existing_id; /* out */
    bool
        handed; /* out: RabbitMQ is to wait for it, and the caller to bring it there: struct store_handover */
};

/* What RabbitMQ may wait for. Of what is stored, messages without key or deadline that are due by until_ms,
 * and not sooner than in least_ahead_ms, are stored as handed, in one hand-over under way (handing.h). None
 * are, where the instance was buried. */
struct store_handover {
    struct message_id handing; /* its id: random, another one for each batch */
    int32_t instance;          /* the caller's */
    int64_t until_ms, least_ahead_ms;
    int64_t grace_ms; /* so long after its due time one is lost in RabbitMQ */
    size_t most;
    bool tried; /* out: a try may be committed though store_accept failed, and what it marked stays marked
                   when it is offered again. Set false before the first one */
};

/* More to be done in the transaction that stores the batch; all of it is committed with the batch or not at
 * all. Either function may be NULL. */
struct store_extra {
    /* Before keys are decided; may set an item's result to STORE_SKIPPED, then it is left out. */
    int (*before)(void *ctx, struct pg *c, struct err *e);
    /* When every item has its result, before the commit. */
    int (*after)(void *ctx, struct pg *c, struct err *e);
    void *ctx;
};

/* An AMQP consumer session, whose messages RabbitMQ may deliver to others, too. Owned and used by the
 * caller's thread. */
struct store_session {
    int64_t name;              /* random, not 0; set by the caller, as the next one */
    size_t unacknowledged_max; /* how many deliveries it can have unacknowledged at most */
    int64_t redelivery;        /* how often redeliveries had been stored when this one looked last */
    size_t suspect;            /* so many of the next messages may have been stored by others … */
    int64_t suspect_since;     /* … after that redelivery */
};

/* What the last batches found locked, so that the next one does not wait for it. Owned by the caller; all
 * zero at first. */
struct store_locks {
    struct locked_days days;
    int64_t read_ms; /* monotonic */
};

struct store_options {
    bool
        keeps_ids; /* they are not marked with the number of the cell: the caller makes the same ones again */
    int64_t
        key_memory_ms; /* how long a key stays taken after its message was delivered ([keys] key_memory) */
    int key_wait_ms;   /* how long a key that somebody's open transaction has is waited for; 0: some ms */
    struct store_session *session;   /* NULL: not from AMQP */
    const struct store_extra *extra; /* NULL: nothing more */
    struct store_locks *locks;       /* NULL: each batch finds out by itself */
    struct store_handover *handover; /* NULL: RabbitMQ waits for nothing at once */
};

/* A delay counts from the database's clock as the transaction begins. The request for that leaves after the
 * caller had the message, so the delay is never too short, whatever stood still or was set in between. What
 * was due before then is due at once. Only the first try counts: what is offered again keeps its due time and
 * its id.
 *
 * Stores a batch: all of it is committed (synchronously) when 0 is returned, none of it on -1. Items get
 * their result. ERR_AWAY and ERR_BUSY: try again; ERR_REJECT: the batch contains something Postgres refuses:
 * offer the items one by one. */
int store_accept(struct pg *c, const struct store_options *o, struct store_item *items, size_t count,
                 struct err *e);

/* now() of the transaction that store_accept began last on c, as created_at of what it stored is read: ms
 * since 1970 rounded up. */
int64_t store_begun_ms(const struct pg *c);

/* Before the session consumes its first message. */
int store_session_begin(struct pg *c, struct store_session *s, struct err *e);

/* Prepares c for storing what RabbitMQ delivered: Postgres ends the session when it leaves a transaction open
 * for 2.5 s: others wait for it (store.c), and its process may have been stopped. Thread: c's. */
int store_prepare_session(struct pg *c, struct err *e);

/* After a commit whose answer was lost or unclear: 1 the row is there, and safe (another synchronous commit
 * has been waited for, which covers the earlier one); 0 it is not there; -1 error. */
int store_was_committed(struct pg *c, struct message_id id, struct err *e);

/* Wakes gateways that sleep: a NOTIFY without payload, in a transaction of its own. For writers outside the
 * gateway, when something due within about a second was committed. A hint, and nothing is said of one that is
 * lost: gateways look anyway, half a lead later at most. None is sent in a transaction, or where PostgreSQL's
 * queue of them is more than half full. */
void store_wake(struct pg *c);

/* Forgets the batches that can't come back any more. unacknowledged: how many deliveries of a session can be,
 * at most; uptime_ms: how long the caller has been consuming. Every ten seconds or so. */
int store_prune_batches(struct pg *c, int64_t unacknowledged, int64_t uptime_ms, struct err *e);

/* The server's clock in µs since 1970. */
int store_clock(struct pg *c, int64_t *out_us, struct err *e);

#endif
