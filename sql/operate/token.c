#include "sql/operate/token.h"

#include "sql/operate/operate_internal.h"
#include "sql_embedded.h"

#include <stdlib.h>
#include <string.h>

static const char *const roles[TOKEN_ROLE_COUNT] = {[TOKEN_OPERATE] = "operate", [TOKEN_READ] = "read"};

const char *token_role_name(enum token_role role)
{
    return roles[role];
}

int token_role_parse(const char *text, enum token_role *out)
{
    for (int i = 0; i < TOKEN_ROLE_COUNT; i++) {
        *out = (enum token_role)i;
        if (strcmp(text, roles[i]) == 0)
            return 0;
    }
    return -1;
}

/* How many rows were written; -1: error. */
static int64_t change(struct pg *c, const char *query, struct pg_params *p, struct err *e)
{
    PGresult *r = operate_query(c, query, p, e);
    int64_t rows = r ? strtoll(PQcmdTuples(r), NULL, 10) : -1;
    PQclear(r);
    return rows;
}

int token_create(struct pg *c, const struct token_record *t, struct err *e)
{
    char shown[80];
    int64_t rows = change(c, sql_query_token_create,
                          PG_WITH(as_str(t->name), as_bytes(bytes_of(t->hash, SHA256_SIZE)),
                                  as_texts(t->exchanges, t->exchange_count), as_int8(TOKEN_COUNT_MAX),
                                  as_str(token_role_name(t->role))),
                          e);
    if (rows < 0 && e->kind == ERR_REJECT)
        return err_set(e, ERR_REJECT, "a token with the name \"%s\" exists already",
                       bytes_printable(bytes_of_str(t->name), shown, sizeof shown));
    if (rows == 0)
        return err_set(e, ERR_REJECT, "there are %d tokens already, which is the limit: revoke some",
                       TOKEN_COUNT_MAX);
    return rows < 0 ? -1 : 0;
}

int token_revoke(struct pg *c, const char *name, struct err *e)
{
    char shown[80];
    int64_t rows = change(c, sql_query_token_revoke, PG_WITH(as_str(name)), e);
    if (rows == 0)
        return err_set(e, ERR_NOT_FOUND, "no token has the name \"%s\"",
                       bytes_printable(bytes_of_str(name), shown, sizeof shown));
    return rows < 0 ? -1 : 0;
}

static int read_token(const PGresult *r, int row, struct arena *a, struct token_record *t, struct err *e)
{
    char role[16];
    struct bytes hash = {0};
    struct pg_texts exchanges = {0};
    *t = (struct token_record){0};
    if (!pg_read(r, row,
                 PG_ROW(PG_TO(t->id), PG_TO(t->name), PG_TIME(t->created_ms), PG_TIME(t->last_used_ms),
                        PG_TIME(t->revoked_ms), PG_TO(role), PG_TO(hash), PG_TO(exchanges)),
                 a))
        return err_set(e, ERR_BUG, "postdate.token: '%s' can't be read", t->name);
    if (hash.len != SHA256_SIZE || token_role_parse(role, &t->role) != 0)
        return err_set(e, ERR_BUG, "postdate.token: '%s' has a hash of %zu bytes, and the role '%s'", t->name,
                       hash.len, role);
    memcpy(t->hash, hash.data, SHA256_SIZE);
    t->exchanges = exchanges.items;
    t->exchange_count = exchanges.count;
    return 0;
}

int token_list(struct pg *c, bool revoked_too, struct arena *a, struct token_record **out, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_token_list, PG_WITH(as_bool(revoked_too)), e);
    if (!r)
        return -1;
    int count = PQntuples(r), rc = 0;
    *out = arena_alloc(a, ((size_t)count + 1) * sizeof **out);
    if (!*out)
        rc = err_set(e, ERR_BUG, "out of memory");
    for (int i = 0; i < count && rc == 0; i++)
        rc = read_token(r, i, a, &(*out)[i], e);
    PQclear(r);
    return rc == 0 ? count : -1;
}

int token_version(struct pg *c, int64_t *out, struct err *e)
{
    int found = pg_take(pg_query(c, sql_query_token_version, NULL, e), PG_ROW(PG_TO(*out)), NULL, e);
    return found == 0  ? err_set(e, ERR_CONFIG, "postdate.token_version is empty: it must have one row")
           : found > 0 ? 0
                       : -1;
}

int token_touch(struct pg *c, const int64_t *ids, size_t count, struct err *e)
{
    return pg_do(c, sql_query_token_touch, PG_WITH(as_int8s(ids, count)), e);
}
