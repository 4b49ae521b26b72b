#include "sql/admin/audit.h"

#include "sql/connection/pg_internal.h"
#include "sql_embedded.h"

#include <inttypes.h>
#include <stdio.h>

int audit_note(struct pg *c, const char *what, int64_t changed, int code, struct err *e)
{
    char line[900];
    snprintf(line, sizeof line, "%s: %" PRId64 " changed, exit %d", what, changed, code);
    return pg_do(c, sql_query_audit_note, PG_WITH(as_str(line)), e);
}
