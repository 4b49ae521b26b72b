/* What is in the schema and belongs to another role than its owner: made before all sessions took that role,
 * or by hand. The members of the owner cannot drop it, nor change it in an upgrade. */
#ifndef POSTDATE_SQL_ADMIN_STRANGERS_H
#define POSTDATE_SQL_ADMIN_STRANGERS_H

#include "core/base/err.h"
#include "sql/connection/pg.h"

struct strangers {
    int count;
    char first[300];  /* "table postdate.message_20261121 of anna" */
    char remedy[400]; /* what gives it to the owner, as SQL */
};
int strangers_find(struct pg *c, struct strangers *out, struct err *e);
/* Gives to the owner what this login may give away; out: what is left. No table is waited for long. */
int strangers_take(struct pg *c, struct strangers *out, struct err *e);
/* ERR_PERMISSION: this session could not take the role of the schema's owner. */
int strangers_check_self(struct pg *c, struct err *e);

#endif
