/* Postgres values in binary: parameters, arrays, results. Source: the *recv and *send functions of
 * PostgreSQL 15. */
#include "sql/connection/pg_internal.h"

#include <string.h>

#define EPOCH_2000_MS INT64_C(946684800000)
#define ARRAY_MAX (256u * 1024 * 1024)

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

static struct pg_value as_number(uint64_t v, int size)
{
    struct pg_value out = {.kind = PG_OWN, .own.len = size};
    for (int i = 0; i < size; i++)
        out.own.data[i] = (uint8_t)(v >> (8 * (size - 1 - i)));
    return out;
}

struct pg_value as_int4(int32_t v)
{
    return as_number((uint32_t)v, 4);
}

struct pg_value as_int8(int64_t v)
{
    return as_number((uint64_t)v, 8);
}

struct pg_value as_float8(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return as_number(bits, 8);
}

struct pg_value as_bool(bool v)
{
    return as_number(v, 1);
}

struct pg_value as_time(int64_t ms)
{
    return as_int8(pg_time_from_ms(ms));
}

struct pg_value as_id(struct message_id id)
{
    struct pg_value out = {.kind = PG_OWN, .own.len = sizeof id.b};
    memcpy(out.own.data, id.b, sizeof id.b);
    return out;
}

struct pg_value as_bound(int64_t ms)
{
    return as_id(message_id_floor(ms));
}

struct pg_value as_bytes(struct bytes v)
{
    return (struct pg_value){.kind = PG_VIEW, .view = v};
}

struct pg_value as_text(struct bytes v)
{
    return v.data ? as_bytes(v) : as_null();
}

struct pg_value as_str(const char *s)
{
    return s ? as_bytes(bytes_of_str(s)) : as_null();
}

struct pg_value as_null(void)
{
    return (struct pg_value){.kind = PG_NULL};
}

struct pg_value *pg_add(struct pg_params *p, struct pg_value v)
{
    struct pg_value *at = p->values;
    while (at->kind != PG_VALUES_END)
        at++;
    *at = v;
    return at;
}

void pg_params_free(struct pg_params *params)
{
    for (int i = 0; params && i < PG_PARAMS_MAX; i++)
        if (params->values[i].kind == PG_ARRAY)
            buf_free(&params->values[i].array);
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

static struct pg_value as_array(enum pg_oid element, size_t count)
{
    struct pg_value out = {.kind = PG_ARRAY};
    buf_init(&out.array, ARRAY_MAX);
    pg_array_begin(&out.array, element, count);
    return out;
}

struct buf *pg_add_array(struct pg_params *p, enum pg_oid element, size_t count)
{
    return &pg_add(p, as_array(element, count))->array;
}

static struct pg_value as_list(enum pg_oid element, const void *items, size_t count)
{
    return (struct pg_value){.kind = PG_LIST, .list = {element, items, count}};
}

struct pg_value as_ids(const struct message_id *ids, size_t count)
{
    return as_list(PG_OID_UUID, ids, count);
}

struct pg_value as_texts(const struct bytes *texts, size_t count)
{
    return as_list(PG_OID_TEXT, texts, count);
}

struct pg_value as_int8s(const int64_t *numbers, size_t count)
{
    return as_list(PG_OID_INT8, numbers, count);
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

static const struct pg_value *encode_list(struct pg_params *lists, const struct pg_value *v)
{
    const void *items = v->list.items;
    struct pg_value *out = pg_add(lists, as_array(v->list.element, v->list.count));
    for (size_t i = 0; i < v->list.count; i++)
        if (v->list.element == PG_OID_UUID)
            pg_array_id(&out->array, ((const struct message_id *)items)[i]);
        else if (v->list.element == PG_OID_TEXT)
            pg_array_bytes(&out->array, ((const struct bytes *)items)[i]);
        else
            pg_array_int8(&out->array, ((const int64_t *)items)[i]);
    return out;
}

int pg_params_list(const struct pg_params *params, struct pg_params *lists, const char *data[], int lengths[],
                   struct err *e)
{
    int n = 0;
    for (; params && n < PG_PARAMS_MAX && params->values[n].kind != PG_VALUES_END; n++) {
        const struct pg_value *v = &params->values[n];
        struct bytes bytes = {0};
        if (v->kind == PG_LIST)
            v = encode_list(lists, v);
        if (v->kind == PG_ARRAY && v->array.failed)
            return err_set(e, ERR_BUG, "out of memory for the parameters of a query");
        if (v->kind == PG_OWN)
            bytes = bytes_of(v->own.data, (size_t)v->own.len);
        else if (v->kind != PG_NULL)
            bytes = v->kind == PG_VIEW ? v->view : buf_bytes(&v->array);
        data[n] = bytes.data || v->kind == PG_NULL ? (const char *)bytes.data : "";
        lengths[n] = (int)bytes.len;
    }
    return n;
}

bool pg_is_null(const PGresult *r, int row, int column)
{
    return PQgetisnull(r, row, column) != 0;
}

int64_t pg_any_number(const PGresult *r)
{
    int len = PQntuples(r) > 0 ? PQgetlength(r, 0, 0) : 0;
    return len <= 8 ? (int64_t)get_be(PQgetvalue(r, 0, 0), len) : 0;
}

/* NULL: a null, or a value of another size, which pg_read refuses. */
static const char *fixed(const PGresult *r, int row, int column, int size)
{
    bool fits = !pg_is_null(r, row, column) && PQgetlength(r, row, column) == size;
    return fits ? PQgetvalue(r, row, column) : NULL;
}

int pg_misfit(const PGresult *r)
{
    static const struct {
        Oid type;
        int size;
    } sizes[] = {{16, 1}, {20, 8}, {21, 2}, {23, 4}, {701, 8}, {1184, 8}, {2950, 16}}; /* pg_type.dat */
    for (int column = 0; column < PQnfields(r); column++) {
        int size = 0;
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] && PQfformat(r, column) == 1; i++)
            size += PQftype(r, column) == sizes[i].type ? sizes[i].size : 0;
        for (int row = 0; row < PQntuples(r) && size > 0; row++)
            if (!pg_is_null(r, row, column) && PQgetlength(r, row, column) != size)
                return column;
    }
    return -1;
}

int32_t pg_int4(const PGresult *r, int row, int column)
{
    const char *v = fixed(r, row, column, 4);
    return v != NULL ? (int32_t)get_be(v, 4) : 0;
}

int64_t pg_int8(const PGresult *r, int row, int column)
{
    const char *v = fixed(r, row, column, 8);
    return v != NULL ? (int64_t)get_be(v, 8) : 0;
}

double pg_float8(const PGresult *r, int row, int column)
{
    int64_t bits = pg_int8(r, row, column);
    double out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

bool pg_bool(const PGresult *r, int row, int column)
{
    const char *v = fixed(r, row, column, 1);
    return v != NULL && *v != 0;
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
    const char *v = fixed(r, row, column, sizeof id.b);
    if (v != NULL)
        memcpy(id.b, v, sizeof id.b);
    return id;
}

struct bytes pg_bytes(const PGresult *r, int row, int column)
{
    if (pg_is_null(r, row, column))
        return (struct bytes){0};
    return bytes_of(PQgetvalue(r, row, column), (size_t)PQgetlength(r, row, column));
}

bool pg_copy(const PGresult *r, int row, int column, struct arena *a, struct bytes *out)
{
    struct bytes v = pg_bytes(r, row, column);
    *out = arena_copy(a, v);
    return v.len == 0 || out->data;
}

void pg_text(const PGresult *r, int row, int column, char *out, size_t out_size)
{
    struct bytes v = pg_bytes(r, row, column);
    size_t n = v.len < out_size ? v.len : out_size - 1;
    if (n)
        memcpy(out, v.data, n);
    out[n] = '\0';
}
