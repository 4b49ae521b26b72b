/* COPY … FROM STDIN (FORMAT BINARY). Source: PostgreSQL documentation, COPY, "Binary Format". */
#include "sql/connection/pg_internal.h"

int pg_copy_begin(struct pg *c, const char *statement, struct buf *b, struct err *e)
{
    static const char header[] = "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0"; /* signature, flags, no extension */
    PGresult *r = pg_exec_result(c, statement);
    int rc = PQresultStatus(r) == PGRES_COPY_IN ? 0 : pg_fail(c, r, e);
    PQclear(r);
    buf_put(b, header, 19);
    return rc;
}

int pg_copy_flush(struct pg *c, struct buf *b, struct err *e)
{
    if (b->failed)
        return err_set(e, ERR_BUG, "out of memory while storing a batch");
    if (b->len && (PQputCopyData(c->conn, (const char *)b->data, (int)b->len) != 1 || !pg_wait(c)))
        return pg_fail(c, NULL, e);
    buf_reset(b);
    return 0;
}

int pg_copy_end(struct pg *c, struct buf *b, int rc, struct err *e)
{
    buf_put_u16(b, UINT16_MAX);
    if (rc == 0)
        rc = pg_copy_flush(c, b, e);
    PGresult *r = pg_answer(c, PQputCopyEnd(c->conn, rc == 0 ? NULL : "given up by the client") == 1);
    if (rc == 0 && PQresultStatus(r) != PGRES_COMMAND_OK)
        rc = pg_fail(c, r, e);
    PQclear(r);
    return rc;
}
