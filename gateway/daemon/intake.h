/* The intake: from the intake queue into the database. One thread, one broker connection, one database
 * connection.
 *
 * Reads a batch as far as deliveries are there, decides each (core/accept.h), stores them in one transaction,
 * parks what can't be accepted, and only then acknowledges. A message whose key is held by somebody's open
 * transaction is set aside and offered again, alone. */
#ifndef POSTDATE_GATEWAY_INTAKE_H
#define POSTDATE_GATEWAY_INTAKE_H

#include "amqp/broker.h"
#include "core/accept.h"
#include "core/arena.h"
#include "core/random.h"
#include "gateway/daemon/gateway.h"
#include "sql/accept_store.h"

#define INTAKE_BATCH_MAX 1000
#define INTAKE_BATCH_BYTES (8u * 1024 * 1024)

struct intake_delivery {
    struct accept_input input; /* views into the batch's arena, or into the block of a message set aside */
    uint64_t tag;
    bool redelivered;
    bool refused; /* reason says why; to be parked */
    char *reason; /* in the arena */
};

/* A delivery that waits for a key, with a copy of its bytes. */
struct intake_aside {
    struct intake_aside *next;
    struct intake_delivery delivery;
    uint8_t data[];
};

struct intake {
    struct gateway *gateway;
    struct accept_rules rules;
    struct pg *pg;
    struct broker *broker;
    int64_t consumer; /* random name of this consumer session, see store_options */
    struct random_pool random;
    struct arena arena;
    struct intake_delivery deliveries[INTAKE_BATCH_MAX];
    struct store_item items[INTAKE_BATCH_MAX];
    size_t item_delivery[INTAKE_BATCH_MAX]; /* which delivery an item came from */
    size_t count, item_count, bytes;
    struct intake_aside *aside, **aside_end;
    size_t aside_count;
    int64_t aside_retry_ms; /* monotonic */
};

/* intake_store.c: decides and stores deliveries[0..count). 0: all stored, refused or set aside; -1: nothing
 * is sure, drop the connection. */
int intake_store(struct intake *in, struct err *e);

/* intake_park.c: publishes the refused ones to postdate.rejected and waits for the confirms. */
int intake_park(struct intake *in, struct err *e);

#endif
