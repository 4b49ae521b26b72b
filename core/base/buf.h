/* A growable output buffer with a hard limit. Overflow or lack of memory sets `failed`, which sticks until
 * buf_reset: callers append freely and check once at the end. Integers are big-endian (the wire order of AMQP
 * and PostgreSQL). Not thread-safe. */
#ifndef POSTDATE_CORE_BASE_BUF_H
#define POSTDATE_CORE_BASE_BUF_H

#include "core/base/arena.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    uint8_t *data;
    size_t len;
    size_t capacity;
    size_t limit;
    bool failed;
    bool no_memory; /* out of memory; else `failed` means the limit */
};

void buf_init(struct buf *b, size_t limit);
void buf_reset(struct buf *b); /* empties, keeps the memory */
void buf_free(struct buf *b);
struct bytes buf_bytes(const struct buf *b);
/* Copies the content of b to the arena and frees b. ERR_BUG: b has failed, or the arena has no room. */
int buf_move(struct buf *b, struct arena *a, struct bytes *out, struct err *e);

void buf_put(struct buf *b, const void *data, size_t len);
void buf_put_bytes(struct buf *b, struct bytes v);
void buf_put_str(struct buf *b, const char *s); /* without the NUL */
void buf_put_u8(struct buf *b, uint8_t v);
void buf_put_u16(struct buf *b, uint16_t v);
void buf_put_u32(struct buf *b, uint32_t v);
void buf_put_u64(struct buf *b, uint64_t v);
void buf_set_u32(struct buf *b, size_t offset,
                 uint32_t v); /* overwrite 4 bytes written before (length prefixes) */
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
