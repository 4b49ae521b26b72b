#include "core/base/buf.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_init(struct buf *b, size_t limit)
{
    *b = (struct buf){.limit = limit < SIZE_MAX ? limit : SIZE_MAX - 1};
}

void buf_reset(struct buf *b)
{
    b->len = 0;
    b->failed = b->no_memory = false;
}

void buf_free(struct buf *b)
{
    if (!b)
        return;
    free(b->data);
    *b = (struct buf){.limit = b->limit};
}

struct bytes buf_bytes(const struct buf *b)
{
    return bytes_of(b->data, b->len);
}

int buf_move(struct buf *b, struct arena *a, struct bytes *out, struct err *e)
{
    size_t len = b->len;
    bool failed = b->failed;
    *out = arena_copy(a, bytes_of(b->data, failed ? 0 : len));
    failed = failed || (len > 0 && out->data == NULL);
    buf_free(b);
    return failed ? err_set(e, ERR_BUG, "out of memory: cannot allocate %zu bytes", len) : 0;
}

/* Makes room for len more bytes, and for a NUL that vsnprintf writes behind them. Returns where they go, or
 * NULL with `failed` set. */
static uint8_t *reserve_bytes(struct buf *b, size_t len)
{
    if (b->failed)
        return NULL;
    if (b->len > b->limit || len > b->limit - b->len) {
        b->failed = true;
        return NULL;
    }
    size_t need = b->len + len + 1;
    if (need > b->capacity) {
        size_t capacity = b->capacity < 128 ? 128 : b->capacity;
        while (capacity < need)
            capacity = capacity > SIZE_MAX / 2 ? need : capacity * 2;
        if (capacity > b->limit + 1)
            capacity = b->limit + 1;
        uint8_t *data = realloc(b->data, capacity);
        if (!data) {
            b->failed = b->no_memory = true;
            return NULL;
        }
        b->data = data;
        b->capacity = capacity;
    }
    return b->data + b->len;
}

void buf_put(struct buf *b, const void *data, size_t len)
{
    if (len == 0)
        return;
    uint8_t *p = reserve_bytes(b, len);
    if (!p)
        return;
    memcpy(p, data, len);
    b->len += len;
}

void buf_put_bytes(struct buf *b, struct bytes v)
{
    buf_put(b, v.data, v.len);
}

void buf_put_str(struct buf *b, const char *s)
{
    buf_put(b, s, strlen(s));
}

static void write_big_endian(uint8_t *p, uint64_t v, size_t width)
{
    for (size_t i = width; i > 0; i--, v >>= 8)
        p[i - 1] = (uint8_t)(v & 0xFF);
}

static void put_big_endian(struct buf *b, uint64_t v, size_t width)
{
    uint8_t *p = reserve_bytes(b, width);
    if (!p)
        return;
    write_big_endian(p, v, width);
    b->len += width;
}

void buf_put_u8(struct buf *b, uint8_t v)
{
    put_big_endian(b, v, 1);
}

void buf_put_u16(struct buf *b, uint16_t v)
{
    put_big_endian(b, v, 2);
}

void buf_put_u32(struct buf *b, uint32_t v)
{
    put_big_endian(b, v, 4);
}

void buf_put_u64(struct buf *b, uint64_t v)
{
    put_big_endian(b, v, 8);
}

void buf_set_u32(struct buf *b, size_t offset, uint32_t v)
{
    if (b->len < 4 || offset > b->len - 4)
        b->failed = true;
    if (!b->failed)
        write_big_endian(b->data + offset, v, 4);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    b->failed = b->failed || n < 0;
    uint8_t *p = reserve_bytes(b, n < 0 ? 0 : (size_t)n);
    if (p) {
        vsnprintf((char *)p, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
}
