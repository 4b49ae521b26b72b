/* Calls of the functions of nouns. */
#include "sql/operate/ask.h"

#include "sql/operate/operate_internal.h"
#include "sql_embedded.h"

/* $1 the operation, $2 the name, $3 the argument, $4 the scope, $5 the caller, $6 versions, $7 fresh. A row:
 * the answer, its outcome, the tag, the text for users.
 *
 * Each noun has its own query, so that plans are separate and errors can be attributed. */
static const enum sql_query queries[] = {[ASK_RECUR] = sql_query_recur_ask,
                                         [ASK_RATE] = sql_query_rate_ask,
                                         [ASK_TOKEN] = sql_query_token_ask,
                                         [ASK_RETRY_POLICY] = sql_query_retry_policy_ask};

/* What else a function may answer: "not_found" and "refused", which are errors. */
static const struct {
    const char *name;
    enum ask_outcome outcome;
} outcomes[] = {{"done", ASK_DONE},
                {"made", ASK_MADE},
                {"unmet", ASK_UNMET},
                {"exists", ASK_EXISTS},
                {"exchange", ASK_EXCHANGE}};

static int take_outcome(const PGresult *r, struct ask_answer *out, struct err *e)
{
    struct bytes outcome = pg_bytes(r, 0, 1);
    pg_text(r, 0, 3, out->said, sizeof out->said);
    for (size_t i = 0; i < sizeof outcomes / sizeof outcomes[0]; i++) {
        if (bytes_equal_str(outcome, outcomes[i].name)) {
            out->outcome = outcomes[i].outcome;
            return 0;
        }
    }
    return err_set(e, bytes_equal_str(outcome, "not_found") ? ERR_NOT_FOUND : ERR_REJECT, "%s", out->said);
}

static int take_answer(const PGresult *r, struct arena *a, struct ask_answer *out, struct err *e)
{
    struct bytes text = pg_bytes(r, 0, 0);
    if (take_outcome(r, out, e) != 0)
        return -1;
    pg_text(r, 0, 2, out->tag, sizeof out->tag);
    if (text.data)
        out->text = arena_copy(a, text);
    return text.data && !out->text.data ? err_set(e, ERR_BUG, "out of memory for %zu bytes", text.len) : 0;
}

int ask_noun(struct pg *c, const struct ask_request *q, struct arena *a, struct ask_answer *out,
             struct err *e)
{
    *out = (struct ask_answer){0};
    PGresult *r = (q->reads ? pg_query : operate_query)(
        c, queries[q->noun],
        PG_WITH(as_str(q->operation), as_text(q->name), as_text(q->argument), as_scope(q->scope),
                as_str(q->via), as_text(q->versions), as_bool(q->fresh)),
        e);
    int rc = r ? take_answer(r, a, out, e) : -1;
    PQclear(r);
    return rc;
}

/* --- tokens, for the gateways that keep them in memory */
int token_list(struct pg *c, struct arena *a, struct token_record **out, struct err *e)
{
    struct token_record t;
    const struct pg_rows rows = {
        .to = PG_ROW(PG_TO(t.id), PG_TO(t.name), PG_TO(t.reads_only), PG_TO(t.hash), PG_TO(t.exchanges)),
        .item = &t,
        .size = sizeof t,
        .arena = a};
    return pg_take_all(pg_query(c, sql_query_ask_token_list, NULL, e), &rows, out, e);
}

int token_version(struct pg *c, int64_t *out, struct err *e)
{
    int found = pg_take(pg_query(c, sql_query_ask_token_version, NULL, e), PG_ROW(PG_TO(*out)), NULL, e);
    return found == 0  ? err_set(e, ERR_CONFIG, "postdate.token_version is empty: it must have one row")
           : found > 0 ? 0
                       : -1;
}

int token_touch(struct pg *c, const int64_t *ids, size_t count, struct err *e)
{
    return pg_do(c, sql_query_ask_token_touch, PG_WITH(as_int8s(ids, count)), e);
}
