/* Messages of a delayed-message plugin on their way into the store (docs/internals/import.md): stored but
 * asleep, awake, and the proof that is left of them. One thread for each connection. */
#ifndef POSTDATE_SQL_OPERATE_IMPORT_H
#define POSTDATE_SQL_OPERATE_IMPORT_H

#include "core/base/arena.h"
#include "core/base/hash.h"
#include "core/message/message.h"
#include "sql/connection/pg.h"
#include <stddef.h>

struct import_row {
    struct message_id id; /* the entry's, made by the broker; no message's */
    int64_t due_ms;
    uint8_t hash[SHA256_SIZE]; /* of the body */
    struct bytes source;       /* the plugin's exchange */
    struct bytes exchange, routing_key, properties, body;
    struct message_id message; /* out, of import_proof: its id */
    bool awake;                /* out, of import_wake */
    bool known;                /* out, of import_stage and import_wake: an earlier import has stored it */
    bool same_table;           /* out, of import_asleep: the plugin's table knows the run that read it */
};

/* Where rows are read from, and by whom. */
struct import_place {
    struct bytes node, run; /* run: its token */
    struct bytes before;    /* those of the runs that the plugin's table knows of, separated by commas */
};

/* By what the broker knows whose import it is: hexadecimal digits. */
#define IMPORT_OWNER_SIZE 33
int import_owner(struct pg *c, char out[IMPORT_OWNER_SIZE], struct err *e);

/* 1: nobody else imports from this node, until c is closed, and earlier runs can drop and forget nothing. 0:
 * somebody does. -1: error. */
int import_be_alone(struct pg *c, const struct import_place *place, struct err *e);

/* Stores rows asleep, but for those that are `known`, in one transaction; committed when 0 is returned.
 * ERR_BUSY: a later run has begun. */
int import_stage(struct pg *c, const struct import_place *place, struct import_row *rows, size_t count,
                 struct err *e);
/* Makes messages of those that are still asleep, in one transaction. What somebody has locked stays asleep:
 * `awake` is false then. ERR_BUSY, ERR_AWAY: as store_accept. */
int import_wake(struct pg *c, enum message_hold hold, struct import_row *rows, size_t count, struct err *e);
/* Forgets those of these entries of this node that are asleep, or that are awake, whose proof is kept
 * elsewhere then; ids NULL: all of them. Unless a later run has begun. How many; -1: error. */
int64_t import_forget(struct pg *c, const struct import_place *place, bool awake,
                      const struct message_id *ids, size_t count, struct err *e);

/* Up to `most` that are asleep, of an import from this node that came to no end: id, due_ms, same_table. How
 * many; -1: error. */
int import_asleep(struct pg *c, const struct import_place *place, struct import_row *rows, size_t most,
                  struct err *e);
/* The rows of these ids that are asleep, with all that they have, in the arena. How many; -1: error. */
int import_read(struct pg *c, const struct message_id *ids, size_t count, struct arena *a,
                struct import_row *rows, struct err *e);

/* Up to IMPORT_PROOF_ROWS of those that are awake, behind `after`, in the order of ids. How many; -1: error.
 */
#define IMPORT_PROOF_ROWS 2000
int import_proof(struct pg *c, struct bytes node, struct message_id after, struct arena *a,
                 struct import_row *rows, struct err *e);
/* 1: some of this node are awake; 0: none; -1: error. */
int import_has_proof(struct pg *c, struct bytes node, struct err *e);

/* How messages of a proof stand now. */
struct import_standing {
    char state[16]; /* as users see it; "gone": settled, and no longer kept; "missing" */
    bool moved;     /* it is due at another time than the proof says */
    int64_t count;
};
#define IMPORT_STANDINGS_MAX 32
/* How many standings; -1: error. */
int import_verify(struct pg *c, const struct import_row *rows, size_t count,
                  struct import_standing out[IMPORT_STANDINGS_MAX], struct err *e);

#endif
