#include "sql/operate/recur.h"

#include "core/base/buf.h"
#include "sql/operate/operate_internal.h"
#include "sql_embedded.h"

#define LOOK_ROWS 200 /* each may make up for a hundred occurrences: about a second */

static const char *const operations[] = {"set",    "show",   "list", "pause",
                                         "resume", "remove", "run",  "preview"};

static int take_answer(const PGresult *r, const struct recur_request *q, struct arena *a, struct bytes *out,
                       struct err *e)
{
    struct bytes text = pg_bytes(r, 0, 0), refusal = pg_bytes(r, 0, 1);
    if (refusal.data)
        return err_set(e, ERR_REJECT, "%.*s", (int)refusal.len, (const char *)refusal.data);
    if (!text.data)
        return err_set(e, ERR_NOT_FOUND, "there is no schedule \"%s\"", q->name ? q->name : "");
    *out = arena_copy(a, text);
    return out->data ? 0 : err_set(e, ERR_BUG, "out of memory for %zu bytes about schedules", text.len);
}

int recur_operate(struct pg *c, const struct recur_request *q, struct arena *a, struct bytes *out,
                  struct err *e)
{
    struct pg_params p = {0};
    struct buf scope;
    pg_add_str(&p, operations[q->operation]);
    if (q->name)
        pg_add_str(&p, q->name);
    else
        pg_add_null(&p);
    if (q->argument.data)
        pg_add_bytes(&p, q->argument);
    else
        pg_add_null(&p);
    if (operate_scope_array(&scope, q->scope, e) != 0) {
        buf_free(&scope);
        return -1;
    }
    operate_add_array(&p, &scope);
    PGresult *r = operate_query(c, sql_query_recur_do, &p, e);
    buf_free(&scope);
    int rc = r ? take_answer(r, q, a, out, e) : -1;
    PQclear(r);
    return rc;
}

/* Calls say for each row that has a text. */
static int say_rows(PGresult *r, void (*say)(const char *text), int *lines)
{
    char text[600];
    int n = r ? PQntuples(r) : -1;
    for (int i = 0; i < n; i++) {
        if (pg_bytes(r, i, 0).len > 0 && (*lines)-- > 0) {
            pg_text(r, i, 0, text, sizeof text);
            say(text);
        }
    }
    PQclear(r);
    return n;
}

int recur_look(struct pg *c, void (*say)(const char *text), int *lines, struct err *e)
{
    struct pg_params p = {0};
    pg_add_int4(&p, LOOK_ROWS);
    return say_rows(pg_query(c, sql_query_recur_look, &p, e), say, lines);
}

int recur_look_zones(struct pg *c, void (*say)(const char *text), struct err *e)
{
    int lines = 1000; /* there are some hundred zones */
    return say_rows(pg_query(c, sql_query_recur_zones, NULL, e), say, &lines) < 0 ? -1 : 0;
}
