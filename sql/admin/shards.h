/* The database's record of queues over which RabbitMQ distributes messages: postdate.shards, a row for each
 * place (the intake, the exit). Between shards_lock and shards_unlock no other session changes the row. One
 * thread, that of the connection. */
#ifndef POSTDATE_SQL_ADMIN_SHARDS_H
#define POSTDATE_SQL_ADMIN_SHARDS_H

#include "core/base/err.h"
#include "sql/connection/pg.h"
#include <stdbool.h>
#include <stddef.h>

#define SHARDS_BY_SIZE 32

/* The configuration of a gateway that starts. */
struct shards_wish {
    int queues; /* 1..64 */
    const char *by;
};

struct shards_record {
    int queues; /* number of queues that get messages, as configured at the gateway that started last */
    int most;   /* number of queues that ever did: all of them are consumed */
    bool grows; /* this wish raises `most`: commit before a message is routed to the new queues */
    char by[SHARDS_BY_SIZE]; /* how the queue of a message is chosen, as configured at that gateway */
    bool used;               /* messages were ever routed through a shards exchange */
    bool settled;            /* the caller's sources are bound to the wanted shards exchange only */
    bool fresh;              /* no source is bound to the wanted shards exchange, or is being moved to it */
    bool moving;             /* the caller's sources are among those being moved */
    const char **sources;    /* all that were moved, or are being moved; owned: shards_record_free */
    char (*names)[256];      /* theirs */
    size_t source_count;
};
void shards_record_free(struct shards_record *r);

struct shards_place {
    const char *place;          /* "intake" */
    const char *const *sources; /* exchanges through which messages arrive there */
    size_t source_count;
};
/* Begins a transaction that locks the place's row, records the wish (may be NULL), and reads the row. 0: out
 * is filled; free it. ERR_BUSY: another session has locked the row; ERR_AWAY. */
int shards_lock(struct pg *c, const struct shards_place *p, const struct shards_wish *wish,
                struct shards_record *out, struct err *e);
/* Adds the caller's sources to those that are to be moved; until shards_mark, none is considered moved. */
int shards_unmark(struct pg *c, const struct shards_place *p, struct err *e);
/* All are moved. */
int shards_mark(struct pg *c, const struct shards_place *p, struct err *e);
/* Reads queues, most, by and used, outside of a transaction, for display. */
int shards_look(struct pg *c, const char *place, struct shards_record *out, struct err *e);
/* Ends the transaction; commits it if rc is 0. Returns rc, or -1 if the commit failed. */
int shards_unlock(struct pg *c, int rc, struct err *e);

#endif
