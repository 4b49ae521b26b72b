/* Lineages: records of messages that consumers rejected (table postdate.lineage), and the policies for them.
 * The caller's thread; no state. */
#ifndef POSTDATE_SQL_PIPELINE_LINEAGE_H
#define POSTDATE_SQL_PIPELINE_LINEAGE_H

#include "core/base/arena.h"
#include "core/base/err.h"
#include "core/message/dead_letter.h"
#include "core/message/retry_policy.h"
#include "sql/connection/pg.h"

struct lineage {
    struct message_id id;
    struct bytes queue;
    struct message_id refusal; /* in: the rejection that is looked up */
    bool found;
    bool dead;
    bool counted;                        /* that rejection is among the last that were counted */
    int failed;                          /* rejected deliveries; 0: none, or none since a requeue */
    uint8_t hash[DEAD_LETTER_HASH_SIZE]; /* of its content */
};

/* Reads the record of each; fills the members after refusal. counted: before before_ms, by the database's
 * clock. */
int lineage_read(struct pg *c, struct lineage *items, size_t count, int64_t before_ms, struct err *e);

struct lineage_failure {
    struct message_id id, refusal;
    struct bytes queue, exchange, routing_key;
    int failed; /* rejected deliveries, including this one */
    unsigned reason;
    const uint8_t *hash;              /* DEAD_LETTER_HASH_SIZE bytes */
    bool dead;                        /* no further delivery */
    const struct message_id *message; /* else the row of the next delivery */
    struct bytes properties, body;    /* of a dead one */
    int64_t deadline_ms;              /* of the message; 0: none */
    int64_t keep_ms;                  /* retention of a dead letter, or of the count */
};

/* Records them, in the caller's transaction. ERR_BUSY: one of them was recorded meanwhile, by another gateway
 * or an earlier try, or a dead letter with this lineage exists: read them again. */
int lineage_write(struct pg *c, const struct lineage_failure *failures, size_t count, struct err *e);

/* All policies, in the arena. */
int lineage_policies(struct pg *c, struct arena *arena, struct retry_policy **out, size_t *out_count,
                     struct err *e);

#endif
