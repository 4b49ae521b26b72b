/* Recurring schedules. What they are and do is SQL (sql/schema/016_2_recur.sql); here is how the programs ask
 * for it. */
#ifndef POSTDATE_SQL_OPERATE_RECUR_H
#define POSTDATE_SQL_OPERATE_RECUR_H

#include "core/base/arena.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include "sql/connection/pg.h"
#include "sql/operate/operate.h"

enum recur_operation {
    RECUR_SET,     /* argument: the definition; answer: the schedule */
    RECUR_SHOW,    /* the schedule */
    RECUR_LIST,    /* {"after": name, "limit": n}; an array of schedules, by name */
    RECUR_PAUSE,   /* the schedule */
    RECUR_RESUME,  /* the schedule */
    RECUR_REMOVE,  /* true */
    RECUR_RUN,     /* the id of the message */
    RECUR_PREVIEW, /* without a name {"cron", "zone", "n", "from", "dst"}, else {"n"}; an array */
};

struct recur_request {
    enum recur_operation operation;
    const char *name;                  /* NULL: none */
    struct bytes argument;             /* JSON; data NULL: none */
    const struct operate_scope *scope; /* NULL: all exchanges */
};

/* *out: the answer as JSON text, in the arena. ERR_NOT_FOUND; ERR_REJECT names the value and what is allowed.
 */
int recur_operate(struct pg *c, const struct recur_request *q, struct arena *a, struct bytes *out,
                  struct err *e);

/* What no claim carries on, because it was missed or because nothing is left of its occurrence: sees to some
 * of those, and calls say for what is worth a line in the log, while *lines > 0; it counts down, also below.
 * Returns how many, 0: none is left; -1. */
int recur_look(struct pg *c, void (*say)(const char *text), int *lines, struct err *e);

/* Next occurrences in time zones whose rules have changed, since tzdata was updated, are computed anew. */
int recur_look_zones(struct pg *c, void (*say)(const char *text), struct err *e);

#endif
