/* Showing a message to somebody who may see some exchanges only. The same queries are asked whether the
 * message does not exist or is not theirs, and a foreign one's body is never read: neither the answer nor the
 * time that it takes tells the two apart. */
#include "sql/operate/lookup_internal.h"
#include "sql/operate/operate_internal.h"
#include "sql_embedded.h"

#define MOVES_MAX 10 /* between our two looks; more in a row is somebody's mischief */

/* 1: it is in out; 0: there is none in the scope. */
static int look(struct pg *c, const struct buf *scope, struct message_id id, struct arena *a,
                struct message_record *out, struct err *e)
{
    struct pg_params p = {0};
    pg_add_time(&p, message_id_due_ms(id));
    pg_add_id(&p, &id);
    operate_add_array(&p, scope);
    PGresult *r = pg_query(c, sql_query_operate_show, &p, e);
    int rc = !r ? -1 : PQntuples(r) > 0;
    if (rc > 0 && lookup_read_record(r, 0, a, out, e) != 0)
        rc = -1;
    PQclear(r);
    return rc;
}

int operate_show_scoped(struct pg *c, const struct operate_scope *scope, struct message_id id,
                        struct arena *a, struct message_record *out, struct err *e)
{
    char text[MESSAGE_ID_TEXT_SIZE];
    struct message_id latest = id, before;
    struct buf array;
    int rc = operate_scope_array(&array, scope, e);
    int found = 0;
    for (int i = 0; i < MOVES_MAX && rc == 0; i++) {
        before = latest;
        rc = operate_latest_id(c, id, &latest, e);
        if (i > 0 && message_id_equal(before, latest))
            break;
        found = rc == 0 && message_id_is_ours(latest) ? look(c, &array, latest, a, out, e) : 0;
        rc = found < 0 ? -1 : rc;
        if (found == 0 || out->state != MESSAGE_SUPERSEDED)
            break;
    }
    buf_free(&array);
    if (rc != 0 || found > 0)
        return rc;
    return err_set(e, ERR_NOT_FOUND, "no message has the id %s", message_id_format(id, text));
}
