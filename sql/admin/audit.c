#include "sql/admin/audit.h"

#include "sql/connection/pg_internal.h"
#include "sql_embedded.h"

#include <inttypes.h>
#include <stdio.h>

int audit_note(struct pg *c, const char *what, int64_t changed, int code, struct err *e)
{
    struct pg_params p = {0};
    char line[900];
    snprintf(line, sizeof line, "%s: %" PRId64 " changed, exit %d", what, changed, code);
    pg_add_str(&p, line);
    return pg_run(c, sql_query_audit_note, &p, e) < 0 ? -1 : 0;
}
