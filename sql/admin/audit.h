/* Who changed what, for those who have no gateway to write it down. */
#ifndef POSTDATE_SQL_ADMIN_AUDIT_H
#define POSTDATE_SQL_ADMIN_AUDIT_H

#include "core/base/err.h"
#include "sql/connection/pg.h"
#include <stdint.h>

/* A line in PostgreSQL's log, with the session's role and address: what was called, how many it changed, how
 * it exited. what is printable. */
int audit_note(struct pg *c, const char *what, int64_t changed, int code, struct err *e);

#endif
