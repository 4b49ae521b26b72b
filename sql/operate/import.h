/* Messages of a delayed-message plugin on their way into the store (docs/internals/import.md): staged
 * (asleep), scheduled (awake), and the proof of the import. One thread for each connection. */
#ifndef POSTDATE_SQL_OPERATE_IMPORT_H
#define POSTDATE_SQL_OPERATE_IMPORT_H

#include "core/base/arena.h"
#include "core/message/message.h"
#include "sql/connection/pg.h"
#include <stddef.h>

struct import_row {
    struct message_id id; /* the entry's, made by the broker; no message's */
    int64_t due_ms;
    struct bytes source; /* the plugin's exchange */
    struct bytes exchange, routing_key, properties, body;
    bool awake;      /* out, of import_wake */
    bool known;      /* out, of import_stage and import_wake: an earlier import has stored it */
    bool same_table; /* out, of import_asleep: the plugin's table knows the run that read it */
};

/* The source of rows, and the run that reads them. */
struct import_place {
    struct bytes node, run; /* run: its token */
    struct bytes before;    /* tokens of the runs that the plugin's table has, separated by commas */
};

/* Identifies this Postdate's imports in RabbitMQ: hexadecimal digits. */
#define IMPORT_OWNER_SIZE 33
int import_owner(struct pg *c, char out[IMPORT_OWNER_SIZE], struct err *e);

/* 1: no other session imports from this node until c is closed, and earlier runs can drop and forget nothing.
 * 0: another one does. -1: error. */
int import_be_alone(struct pg *c, const struct import_place *place, struct err *e);

/* Stores rows asleep, but for those that are `known`, in one transaction; committed when 0 is returned.
 * ERR_BUSY: a later run has begun. */
int import_stage(struct pg *c, const struct import_place *place, struct import_row *rows, size_t count,
                 struct err *e);
/* Makes messages of those that are still asleep, in one transaction. Rows of locked days or keys stay asleep:
 * `awake` is false then. ERR_BUSY, ERR_AWAY: as store_accept. */
int import_wake(struct pg *c, enum message_hold hold, struct import_row *rows, size_t count, struct err *e);
/* Deletes the records of these entries of this node: asleep ones, or (awake) those whose proof is stored
 * elsewhere; ids NULL: all. Not if a later run has begun. How many; -1: error. */
int64_t import_forget(struct pg *c, const struct import_place *place, bool awake,
                      const struct message_id *ids, size_t count, struct err *e);

/* Up to `most` that are asleep, of an unfinished import from this node: id, due_ms, same_table. How many; -1:
 * error. */
int import_asleep(struct pg *c, const struct import_place *place, struct import_row *rows, size_t most,
                  struct err *e);
/* The rows of these ids that are asleep, with all fields, in the arena. How many; -1: error. */
int import_read(struct pg *c, const struct message_id *ids, size_t count, struct arena *a,
                struct import_row *rows, struct err *e);

/* Up to IMPORT_PROOF_ROWS of those that are awake, behind `after`, in the order of ids, in the arena. How
 * many; -1: error. */
#define IMPORT_PROOF_ROWS 2000
struct import_proof_line {
    struct message_id id;
    struct bytes source, text; /* text: JSON */
};
int import_proof(struct pg *c, struct bytes node, struct message_id after, struct arena *a,
                 struct import_proof_line **out, struct err *e);
/* 1: some of this node are awake; 0: none; -1: error. */
int import_has_proof(struct pg *c, struct bytes node, struct err *e);

/* A message, as a proof has it. */
struct import_claim {
    struct message_id id;
    int64_t due_ms;
};
/* The present states of messages of a proof. */
struct import_standing {
    char state[16]; /* as shown to users; "gone": settled, and deleted after its retention; "missing" */
    bool moved;     /* its due time differs from the proof's */
    int64_t count;
};
#define IMPORT_STANDINGS_MAX 32
/* How many standings; -1: error. */
int import_verify(struct pg *c, const struct import_claim *claims, size_t count,
                  struct import_standing out[IMPORT_STANDINGS_MAX], struct err *e);

#endif
