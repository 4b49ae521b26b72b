/* Audit lines of programs that change the database without a gateway. */
#ifndef POSTDATE_SQL_ADMIN_AUDIT_H
#define POSTDATE_SQL_ADMIN_AUDIT_H

#include "core/base/err.h"
#include "sql/connection/pg.h"
#include <stdint.h>

/* Writes a line to PostgreSQL's log, with the session's role and address: what (the command, printable), the
 * number of changed objects, the exit code. */
int audit_note(struct pg *c, const char *what, int64_t changed, int code, struct err *e);

#endif
