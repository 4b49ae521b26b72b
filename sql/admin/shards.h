/* What the database remembers of queues that RabbitMQ spreads messages over: postdate.shards, a row for each
 * place. Between shards_lock and shards_unlock nobody else changes anything there. One thread, that of the
 * connection. */
#ifndef POSTDATE_SQL_ADMIN_SHARDS_H
#define POSTDATE_SQL_ADMIN_SHARDS_H

#include "core/base/err.h"
#include "sql/connection/pg.h"
#include <stdbool.h>
#include <stddef.h>

#define SHARDS_BY_SIZE 32

/* What a gateway that starts asks for. */
struct shards_wish {
    int queues; /* 1..64 */
    const char *by;
};

struct shards_record {
    int queues;              /* so many get messages, as the gateway that started last wants */
    int most;                /* so many ever did: all of them are read */
    bool grows;              /* by this wish: to be committed before a message goes to any of those */
    char by[SHARDS_BY_SIZE]; /* by what a message is given to a queue, as that gateway wants */
    bool used;               /* messages went by a shards exchange, ever */
    bool settled;            /* the caller's sources lead to the one that is wanted, and nowhere else */
    bool fresh;              /* no source goes by the one that is wanted, or is being moved */
    bool moving;             /* the caller's sources are among those being moved */
    const char **sources;    /* all that were moved, or are being moved; owned: shards_record_free */
    size_t source_count;
};
void shards_record_free(struct shards_record *r);

struct shards_place {
    const char *place;          /* "intake" */
    const char *const *sources; /* exchanges by which messages come there */
    size_t source_count;
};
/* Begins a transaction that holds the place's row, records the wish (NULL: there is none), and reads. 0: out
 * is filled, to be freed. ERR_BUSY: somebody else has the row; ERR_AWAY. */
int shards_lock(struct pg *c, const struct shards_place *p, const struct shards_wish *wish,
                struct shards_record *out, struct err *e);
/* The caller's sources are to be moved, too, and until shards_mark none counts as moved. */
int shards_unmark(struct pg *c, const struct shards_place *p, struct err *e);
/* All are moved. */
int shards_mark(struct pg *c, const struct shards_place *p, struct err *e);
/* Outside of a transaction, for people: queues, most, by and used. */
int shards_look(struct pg *c, const char *place, struct shards_record *out, struct err *e);
/* Ends the transaction: rc 0 commits it. Returns rc, or -1 where that failed. */
int shards_unlock(struct pg *c, int rc, struct err *e);

#endif
