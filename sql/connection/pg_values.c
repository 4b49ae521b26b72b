/* Postgres values in binary: parameters, arrays, results. Source: the *recv and *send functions of
 * PostgreSQL 15. */
#include "sql/connection/pg_internal.h"

#include <string.h>

#define EPOCH_2000_MS INT64_C(946684800000)

static void put_be(uint8_t *out, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        out[i] = (uint8_t)(v >> (8 * (bytes - 1 - i)));
}

static uint64_t get_be(const char *in, int bytes)
{
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++)
        v = v << 8 | (uint8_t)in[i];
    return v;
}

int64_t pg_time_from_ms(int64_t ms)
{
    int64_t us;
    /* What is no time is as far away as can be said: infinity. */
    if (__builtin_sub_overflow(ms, EPOCH_2000_MS, &us) || __builtin_mul_overflow(us, INT64_C(1000), &us))
        return ms < 0 ? INT64_MIN : INT64_MAX;
    return us;
}

static void add_scratch(struct pg_params *p, uint64_t v, int size)
{
    put_be(p->scratch[p->count], v, size);
    p->values[p->count] = (const char *)p->scratch[p->count];
    p->lengths[p->count] = size;
    p->count++;
}

void pg_add_int4(struct pg_params *p, int32_t v)
{
    add_scratch(p, (uint32_t)v, 4);
}

void pg_add_int8(struct pg_params *p, int64_t v)
{
    add_scratch(p, (uint64_t)v, 8);
}

void pg_add_bool(struct pg_params *p, bool v)
{
    add_scratch(p, v, 1);
}

void pg_add_time(struct pg_params *p, int64_t ms)
{
    add_scratch(p, (uint64_t)pg_time_from_ms(ms), 8);
}

void pg_add_id(struct pg_params *p, const struct message_id *id)
{
    pg_add_bytes(p, bytes_of(id->b, sizeof id->b));
}

void pg_add_bound(struct pg_params *p, int64_t ms)
{
    const struct message_id id = message_id_floor(ms);
    memcpy(p->scratch[p->count], id.b, sizeof id.b);
    pg_add_bytes(p, bytes_of(p->scratch[p->count], sizeof id.b));
}

void pg_add_bytes(struct pg_params *p, struct bytes v)
{
    p->values[p->count] = v.data ? (const char *)v.data : "";
    p->lengths[p->count] = (int)v.len;
    p->count++;
}

void pg_add_str(struct pg_params *p, const char *s)
{
    if (s)
        pg_add_bytes(p, bytes_of_str(s));
    else
        pg_add_null(p);
}

void pg_add_null(struct pg_params *p)
{
    p->values[p->count] = NULL;
    p->lengths[p->count] = 0;
    p->count++;
}

void pg_array_begin(struct buf *b, enum pg_oid element, size_t count)
{
    buf_reset(b);
    buf_put_u32(b, count ? 1 : 0); /* dimensions */
    buf_put_u32(b, 1);             /* may hold nulls */
    buf_put_u32(b, (uint32_t)element);
    if (count) {
        buf_put_u32(b, (uint32_t)count);
        buf_put_u32(b, 1); /* lower bound */
    }
}

void pg_array_bytes(struct buf *b, struct bytes v)
{
    buf_put_u32(b, (uint32_t)v.len);
    buf_put_bytes(b, v);
}

void pg_array_time(struct buf *b, int64_t ms)
{
    buf_put_u32(b, 8);
    buf_put_u64(b, (uint64_t)pg_time_from_ms(ms));
}

void pg_array_id(struct buf *b, struct message_id id)
{
    pg_array_bytes(b, bytes_of(id.b, sizeof id.b));
}

void pg_array_int4(struct buf *b, int32_t v)
{
    buf_put_u32(b, 4);
    buf_put_u32(b, (uint32_t)v);
}

void pg_array_int8(struct buf *b, int64_t v)
{
    buf_put_u32(b, 8);
    buf_put_u64(b, (uint64_t)v);
}

void pg_array_null(struct buf *b)
{
    buf_put_u32(b, UINT32_MAX);
}

bool pg_is_null(const PGresult *r, int row, int column)
{
    return PQgetisnull(r, row, column) != 0;
}

int32_t pg_int4(const PGresult *r, int row, int column)
{
    return pg_is_null(r, row, column) ? 0 : (int32_t)get_be(PQgetvalue(r, row, column), 4);
}

int64_t pg_int8(const PGresult *r, int row, int column)
{
    return pg_is_null(r, row, column) ? 0 : (int64_t)get_be(PQgetvalue(r, row, column), 8);
}

bool pg_bool(const PGresult *r, int row, int column)
{
    return !pg_is_null(r, row, column) && *PQgetvalue(r, row, column) != 0;
}

int64_t pg_time_us(const PGresult *r, int row, int column)
{
    int64_t us = pg_int8(r, row, column);
    return __builtin_add_overflow(us, EPOCH_2000_MS * 1000, &us) ? INT64_MAX : us; /* infinity */
}

int64_t pg_time_ms(const PGresult *r, int row, int column)
{
    if (pg_is_null(r, row, column))
        return -1;
    int64_t us = pg_time_us(r, row, column);
    return us / 1000 + (us % 1000 > 0);
}

struct message_id pg_id(const PGresult *r, int row, int column)
{
    struct message_id id = {{0}};
    if (PQgetlength(r, row, column) == (int)sizeof id.b)
        memcpy(id.b, PQgetvalue(r, row, column), sizeof id.b);
    return id;
}

struct bytes pg_bytes(const PGresult *r, int row, int column)
{
    if (pg_is_null(r, row, column))
        return (struct bytes){0};
    return bytes_of(PQgetvalue(r, row, column), (size_t)PQgetlength(r, row, column));
}

void pg_text(const PGresult *r, int row, int column, char *out, size_t out_size)
{
    struct bytes v = pg_bytes(r, row, column);
    size_t n = v.len < out_size ? v.len : out_size - 1;
    if (n)
        memcpy(out, v.data, n);
    out[n] = '\0';
}
