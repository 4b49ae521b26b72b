#include "sql/operate/token.h"

#include "sql/connection/pg_internal.h"
#include "sql_embedded.h"

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

int token_create(struct pg *c, const struct token_record *t, struct err *e)
{
    char shown[80];
    int64_t rows = pg_run(c, sql_query_token_create,
                          PG_WITH(as_str(t->name), as_bytes(bytes_of(t->hash, SHA256_SIZE)),
                                  as_texts(t->exchanges, t->exchange_count), as_int8(TOKEN_COUNT_MAX),
                                  as_str(token_role_name(t->role))),
                          e);
    if (rows < 0 && e->kind == ERR_REJECT)
        return err_set(e, ERR_REJECT, "a token with the name \"%s\" is there already",
                       bytes_printable(bytes_of_str(t->name), shown, sizeof shown));
    if (rows == 0)
        return err_set(e, ERR_REJECT, "there are %d tokens already: allowed are no more (revoke some)",
                       TOKEN_COUNT_MAX);
    return rows < 0 ? -1 : 0;
}

int token_revoke(struct pg *c, const char *name, struct err *e)
{
    char shown[80];
    int64_t rows = pg_run(c, sql_query_token_revoke, PG_WITH(as_str(name)), e);
    if (rows == 0)
        return err_set(e, ERR_NOT_FOUND, "no token has the name \"%s\"",
                       bytes_printable(bytes_of_str(name), shown, sizeof shown));
    return rows < 0 ? -1 : 0;
}

static uint32_t read_be(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* A text[] in Postgres' binary form: dimensions, flags, type, [length, lower bound], then the items. */
static int read_texts(struct bytes v, struct arena *a, struct token_record *t, struct err *e)
{
    uint32_t dimensions = v.len >= 12 ? read_be(v.data) : 2, count = 0;
    size_t at = dimensions == 1 ? 20 : 12;
    if (dimensions == 1 && v.len >= at)
        count = read_be(v.data + 12);
    if (dimensions > 1 || v.len < at || count > (v.len - at) / 4)
        return err_set(e, ERR_BUG, "postdate.token: the exchanges of '%s' are no simple array", t->name);
    t->exchange_count = count;
    t->exchanges = arena_alloc(a, (count + 1) * sizeof *t->exchanges);
    for (uint32_t i = 0; i < count && t->exchanges; i++) {
        uint32_t len = v.len - at >= 4 ? read_be(v.data + at) : UINT32_MAX;
        if (v.len - at < 4 || len > v.len - at - 4)
            return err_set(e, ERR_BUG, "postdate.token: the exchanges of '%s' can't be read", t->name);
        struct bytes name = len > 0 ? arena_copy(a, bytes_of(v.data + at + 4, len)) : bytes_of("", 0);
        t->exchanges[i] = name;
        if (!name.data)
            t->exchanges = NULL;
        at += 4 + len;
    }
    return t->exchanges ? 0 : err_set(e, ERR_BUG, "out of memory");
}

static int read_token(const PGresult *r, int row, struct arena *a, struct token_record *t, struct err *e)
{
    struct bytes hash = pg_bytes(r, row, 1);
    *t = (struct token_record){.id = pg_int8(r, row, 0),
                               .created_ms = pg_time_ms(r, row, 4),
                               .last_used_ms = pg_time_ms(r, row, 5),
                               .revoked_ms = pg_time_ms(r, row, 6)};
    pg_text(r, row, 2, t->name, sizeof t->name);
    if (hash.len != SHA256_SIZE)
        return err_set(e, ERR_BUG, "postdate.token: the hash of '%s' has %zu bytes", t->name, hash.len);
    char role[16];
    pg_text(r, row, 7, role, sizeof role);
    if (token_role_parse(role, &t->role) != 0)
        return err_set(e, ERR_BUG, "postdate.token: '%s' has the role '%s'", t->name, role);
    memcpy(t->hash, hash.data, SHA256_SIZE);
    return read_texts(pg_bytes(r, row, 3), a, t, e);
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
    PGresult *r = pg_query(c, sql_query_token_version, NULL, e);
    if (!r)
        return -1;
    bool there = PQntuples(r) == 1;
    if (there)
        *out = pg_int8(r, 0, 0);
    PQclear(r);
    return there ? 0 : err_set(e, ERR_CONFIG, "postdate.token_version is empty: it must have one row");
}

int token_listen(struct pg *c, struct err *e)
{
    /* Somebody's lock on the tokens must not hold up a stop. */
    return pg_exec(c, "set lock_timeout = '2s'; listen postdate_tokens", e);
}

int token_touch(struct pg *c, const int64_t *ids, size_t count, struct err *e)
{
    return pg_do(c, sql_query_token_touch, PG_WITH(as_int8s(ids, count)), e);
}
