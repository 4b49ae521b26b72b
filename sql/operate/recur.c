#include "sql/operate/recur.h"

#include "core/base/buf.h"
#include "sql/operate/operate_internal.h"
#include "sql_embedded.h"

#define LOOK_ROWS 200 /* each may make up for a hundred occurrences: about a second */

static int copy_text(struct bytes text, struct arena *a, struct bytes *out, struct err *e)
{
    *out = arena_copy(a, text);
    return out->data ? 0 : err_set(e, ERR_BUG, "out of memory for %zu bytes about schedules", text.len);
}

/* The text of a refusal, unless it is null. */
static int take_refusal(struct bytes refusal, struct err *e)
{
    return refusal.data ? err_set(e, ERR_REJECT, "%.*s", (int)refusal.len, (const char *)refusal.data) : 0;
}

int recur_apply(struct pg *c, const struct recur_apply *q, struct arena *a, struct bytes *out, struct err *e)
{
    PGresult *r = operate_query(
        c, sql_query_recur_apply,
        PG_WITH(as_bytes(q->schedules), as_bool(q->dry_run), as_str(q->prefix), as_str(q->via)), e);
    if (r == NULL && e->kind == ERR_BUSY && !pg_is_broken(c))
        err_set(e, ERR_BUSY, "another session is changing schedules (busy): nothing was changed, try again");
    int rc = r ? take_refusal(pg_bytes(r, 0, 1), e) : -1;
    if (rc == 0)
        rc = copy_text(pg_bytes(r, 0, 0), a, out, e);
    PQclear(r);
    return rc;
}

/* Calls say for each row that has a text. */
static int say_rows(PGresult *r, void (*say)(const char *text))
{
    char text[600];
    int n = r ? PQntuples(r) : -1;
    for (int i = 0; i < n; i++) {
        if (pg_bytes(r, i, 0).len > 0) {
            pg_text(r, i, 0, text, sizeof text);
            say(text);
        }
    }
    PQclear(r);
    return n;
}

int recur_look(struct pg *c, void (*say)(const char *text), struct err *e)
{
    return say_rows(pg_query(c, sql_query_recur_look, PG_WITH(as_int4(LOOK_ROWS)), e), say);
}

int recur_look_clock(struct pg *c, int64_t retry_most_ms, int64_t *seen_ms, void (*say)(const char *text),
                     struct err *e)
{
    int64_t back_ms;
    bool busy;
    char said[600];
    if (pg_ask(c, sql_query_recur_clock_back, NULL, PG_ROW(PG_TIME(back_ms)), e) != 0)
        return -1;
    if (back_ms == *seen_ms)
        return 0;
    if (pg_ask(c, sql_query_recur_clock, PG_WITH(as_int8(retry_most_ms)), PG_ROW(PG_TO(said), PG_TO(busy)),
               e) != 0)
        return -1;
    if (said[0] != '\0')
        say(said);
    if (!busy)
        *seen_ms = back_ms;
    return 1;
}

int recur_look_zones(struct pg *c, void (*say)(const char *text), struct err *e)
{
    return say_rows(pg_query(c, sql_query_recur_zones, NULL, e), say) < 0 ? -1 : 0;
}
