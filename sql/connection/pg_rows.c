/* Rows into structs, by tables of their columns. */
#include "sql/connection/pg_internal.h"

#include <stdlib.h>
#include <string.h>

/* A copy that has data, also of what is empty. */
static bool copy_bytes(struct bytes v, struct arena *a, struct bytes *out)
{
    *out = v.len > 0 ? arena_copy(a, v) : bytes_of("", 0);
    return out->data != NULL;
}

/* A text[]: dimensions, flags, type, [length, lower bound], then the items. False also where it is more than
 * a list. */
static bool read_texts(struct bytes v, struct arena *a, struct pg_texts *out)
{
    uint32_t dimensions = v.len >= 12 ? bytes_read_u32(v.data) : 2;
    size_t at = dimensions == 1 ? 20 : 12;
    if (dimensions > 1 || v.len < at)
        return false;
    uint32_t count = dimensions == 1 ? bytes_read_u32(v.data + 12) : 0;
    if (count > (v.len - at) / 4)
        return false;
    *out = (struct pg_texts){arena_alloc(a, (count + 1) * sizeof *out->items), count};
    for (uint32_t i = 0; i < count && out->items; i++) {
        uint32_t len = v.len - at >= 4 ? bytes_read_u32(v.data + at) : UINT32_MAX;
        if (v.len - at < 4 || len > v.len - at - 4 ||
            !copy_bytes(bytes_of(v.data + at + 4, len), a, &out->items[i]))
            return false;
        at += 4 + len;
    }
    return out->items != NULL;
}

static bool read_column(const PGresult *r, int row, int i, const struct pg_to *to, struct arena *a)
{
    switch (to->kind) {
    case PG_INT4:
        *(int32_t *)to->at = pg_int4(r, row, i);
        return true;
    case PG_INT8:
        *(int64_t *)to->at = pg_int8(r, row, i);
        return true;
    case PG_FLOAT8:
        *(double *)to->at = pg_float8(r, row, i);
        return true;
    case PG_BOOL:
        *(bool *)to->at = pg_bool(r, row, i);
        return true;
    case PG_ID:
        *(struct message_id *)to->at = pg_id(r, row, i);
        return true;
    case PG_MS:
        *(int64_t *)to->at = pg_time_ms(r, row, i);
        return true;
    case PG_CHARS:
        pg_text(r, row, i, to->at, to->size);
        return true;
    case PG_COPY:
        return pg_copy(r, row, i, a, to->at);
    case PG_TEXTS:
        return read_texts(pg_bytes(r, row, i), a, to->at);
    default:
        return true;
    }
}

/* What a value must have; 0: whatever it has. */
static int size_of(const struct pg_to *to)
{
    static const int sizes[] = {
        [PG_INT4] = 4, [PG_INT8] = 8, [PG_FLOAT8] = 8, [PG_BOOL] = 1, [PG_ID] = 16, [PG_MS] = 8};
    return to->kind < sizeof sizes / sizeof sizes[0] ? sizes[to->kind] : 0;
}

/* The column is there, and its value has the size that is read. */
static bool fits(const PGresult *r, int row, int i, const struct pg_to *to)
{
    int size = size_of(to);
    return i < PQnfields(r) && (size == 0 || pg_is_null(r, row, i) || PQgetlength(r, row, i) == size);
}

bool pg_read(const PGresult *r, int row, const struct pg_to *to, struct arena *a)
{
    bool fine = true;
    for (int i = 0; fine && to[i].kind != PG_END; i++)
        fine = fits(r, row, i, &to[i]) && read_column(r, row, i, &to[i], a);
    return fine;
}

/* Why pg_read could not. */
static int fail_read(const PGresult *r, int row, const struct pg_to *to, struct err *e)
{
    for (int i = 0; to[i].kind != PG_END; i++)
        if (!fits(r, row, i, &to[i]))
            return err_set(e, ERR_BUG, "PostgreSQL answered with %d bytes in column %d of %d instead of %d",
                           i < PQnfields(r) ? PQgetlength(r, row, i) : 0, i + 1, PQnfields(r),
                           size_of(&to[i]));
    return err_set(e, ERR_BUG, "out of memory for PostgreSQL's answer");
}

int pg_take(PGresult *r, const struct pg_to *to, struct arena *a, struct err *e)
{
    int found = r ? PQntuples(r) > 0 : -1;
    if (found > 0 && !pg_read(r, 0, to, a))
        found = fail_read(r, 0, to, e);
    PQclear(r);
    return found;
}

int pg_ask(struct pg *c, enum sql_query query, const struct pg_params *params, const struct pg_to *to,
           struct err *e)
{
    int found = pg_take(pg_query(c, query, params, e), to, NULL, e);
    return found != 0 ? (found < 0 ? -1 : 0) : err_set(e, ERR_BUG, "PostgreSQL answered without a row");
}

int pg_take_all(PGresult *r, const struct pg_rows *rows, void *out, struct err *e)
{
    if (!r)
        return -1;
    int n = PQntuples(r);
    size_t size = ((size_t)n + 1) * rows->size;
    char *all = rows->arena ? arena_alloc(rows->arena, size) : malloc(size);
    int rc = all != NULL ? 0 : err_set(e, ERR_BUG, "out of memory for PostgreSQL's answer");
    for (int i = 0; i < n && all != NULL && rc == 0; i++) {
        rc = pg_read(r, i, rows->to, rows->arena) ? 0 : fail_read(r, i, rows->to, e);
        memcpy(all + (size_t)i * rows->size, rows->item, rows->size);
    }
    PQclear(r);
    if (rc != 0 && !rows->arena) {
        free(all);
        all = NULL;
    }
    memcpy(out, &all, sizeof all);
    return rc == 0 ? n : -1;
}
