/* Commits that make reads durable.
 *
 * A transaction may read the result of a commit whose wait for the standby was cancelled, or whose backend
 * died during it: it is visible, and lost after a fail-over. A COMMIT waits for the disk and the standby only
 * if its transaction has an id and has written to the WAL (RecordTransactionCommit); then all that it saw is
 * as safe as what it wrote, for both take the WAL in its order. An id alone does not wait. A message in the
 * WAL, which is never read, gives both. */
#include "sql/connection/pg_internal.h"

#define WRITE_NOTHING "select pg_logical_emit_message(true, 'postdate', '')"

static bool send_text(struct pg *c, const char *text)
{
    return PQsendQueryParams(c->conn, text, 0, NULL, NULL, NULL, NULL, 0) == 1;
}

/* In one round trip, with a COMMIT of its own: a failure of one at the end of a pipeline has no place among
 * its answers. */
static int send_all(struct pg *c, const char *first, enum sql_query query, const struct pg_params *params,
                    struct err *e)
{
    if (pg_prepare(c, query, e) != 0)
        return -1;
    if (PQenterPipelineMode(c->conn) != 1 || !send_text(c, "begin") || (first && !send_text(c, first)))
        return pg_fail(c, NULL, e);
    int sent = pg_send_prepared(c, query, params, e);
    if (sent < 0)
        return -1;
    if (sent == 0 || !send_text(c, WRITE_NOTHING) || !send_text(c, "commit") || PQpipelineSync(c->conn) != 1)
        return pg_fail(c, NULL, e);
    return 0;
}

/* What the nth statement answers, or the first failure; NULL: the connection is lost. */
static PGresult *take_answers(struct pg *c, int nth)
{
    PGresult *kept = NULL, *r;
    bool ended = false, failed = false;
    for (int i = 0, nulls = 0; !ended && nulls < 2;) {
        pg_wait(c);
        r = PQgetResult(c->conn);
        nulls = r ? 0 : nulls + 1; /* one is behind each statement's answer */
        ended = r && PQresultStatus(r) == PGRES_PIPELINE_SYNC;
        bool takes = r && !ended && !failed && (i == nth || PQresultStatus(r) == PGRES_FATAL_ERROR);
        failed = failed || (takes && PQresultStatus(r) == PGRES_FATAL_ERROR);
        i += r != NULL;
        PQclear(takes ? kept : r);
        kept = takes ? r : kept;
    }
    if (ended || failed)
        return kept;
    PQclear(kept);
    return NULL;
}

PGresult *pg_query_sure(struct pg *c, const char *first, enum sql_query query, const struct pg_params *params,
                        struct err *e)
{
    c->committed_locally = false;
    c->blocked_by[0] = '\0';
    if (send_all(c, first, query, params, e) != 0)
        return NULL;
    PGresult *r = take_answers(c, first ? 2 : 1);
    c->lost = c->lost || PQexitPipelineMode(c->conn) != 1;
    if (c->lost && PQresultStatus(r) != PGRES_FATAL_ERROR) {
        PQclear(r);
        r = NULL;
    }
    r = pg_believe(c, r, e);
    if (!r && !pg_is_broken(c))
        pg_rollback(c);
    return r;
}

int pg_commit_sure(struct pg *c, struct err *e)
{
    return pg_end(c, WRITE_NOTHING "; commit", e);
}

int pg_confirm(struct pg *c, struct err *e)
{
    int rc = pg_end(c, "begin; " WRITE_NOTHING "; commit", e);
    if (rc != 0)
        pg_rollback(c);
    return rc;
}
