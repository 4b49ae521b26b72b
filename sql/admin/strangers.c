#include "sql/admin/strangers.h"

#include "sql/connection/pg_internal.h"
#include "sql_embedded.h"

#include <stdio.h>
#include <string.h>

#define STATEMENT_MAX 2000

static void put_statement(const PGresult *r, int row, char *out, size_t size)
{
    char kind[16], name[1500], owner[200];
    pg_text(r, row, 0, kind, sizeof kind);
    pg_text(r, row, 1, name, sizeof name);
    pg_text(r, row, 4, owner, sizeof owner);
    snprintf(out, size, "alter %s %s owner to %s", kind, name, owner);
}

static void note_first(const PGresult *r, struct strangers *out)
{
    char kind[16], name[160], owner[100], statement[STATEMENT_MAX];
    pg_text(r, 0, 0, kind, sizeof kind);
    pg_text(r, 0, 1, name, sizeof name);
    pg_text(r, 0, 2, owner, sizeof owner);
    put_statement(r, 0, statement, sizeof statement);
    snprintf(out->first, sizeof out->first, "%s %s of %s", kind, name, owner);
    snprintf(out->remedy, sizeof out->remedy, "%.*s", (int)sizeof out->remedy - 1, statement);
}

int strangers_find(struct pg *c, struct strangers *out, struct err *e)
{
    memset(out, 0, sizeof *out);
    PGresult *r = pg_query(c, sql_query_strangers_find, NULL, e);
    if (!r)
        return -1;
    out->count = PQntuples(r);
    if (out->count > 0)
        note_first(r, out);
    PQclear(r);
    return 0;
}

/* The login's own rights count, not those of the role that the session took. */
static int take_all(struct pg *c, const PGresult *r, struct err *e)
{
    char text[STATEMENT_MAX];
    if (pg_exec(c, "set role none", e) != 0)
        return -1;
    for (int i = 0; i < PQntuples(r) && !pg_is_broken(c); i++) {
        put_statement(r, i, text, sizeof text);
        if (pg_bool(r, i, 3))
            pg_exec(c, text, NULL); /* what fails is found again */
    }
    if (pg_is_broken(c))
        return err_set(e, ERR_AWAY, "lost the connection to Postgres");
    pg_take_role(c);
    return 0;
}

int strangers_take(struct pg *c, struct strangers *out, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_strangers_find, NULL, e);
    if (!r)
        return -1;
    int rc = PQntuples(r) > 0 ? take_all(c, r, e) : 0;
    PQclear(r);
    return rc == 0 ? strangers_find(c, out, e) : -1;
}

int strangers_check_self(struct pg *c, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_strangers_self, NULL, e);
    if (!r)
        return -1;
    int rc = 0;
    if (PQntuples(r) == 1 && !pg_bool(r, 0, 0)) {
        char owner[200], self[200];
        pg_text(r, 0, 1, owner, sizeof owner);
        pg_text(r, 0, 2, self, sizeof self);
        rc = err_set(e, ERR_PERMISSION,
                     "schema postdate belongs to %s, and login %s may not act as that role: use it in "
                     "postgres.url, or: grant %s to %s",
                     owner, self, owner, self);
    }
    PQclear(r);
    return rc;
}
