/* AMQP 1.0 sections in headers: what is lifted is a table that can be read, nothing of ours is left in a
 * section, and lifting again changes nothing. First byte: which sections; then one length and its bytes, and
 * the rest. */
#include "core/message/amqp10.h"
#include "core/message/wire.h"
#include "tests/fuzz/fuzz.h"

static void check_table(struct bytes headers)
{
    struct wire_properties p = {.flags = WIRE_HEADERS, .headers = headers}, again;
    struct err e = {0};
    struct buf raw;
    buf_init(&raw, 2 * headers.len + 64);
    wire_properties_write(&p, &raw);
    FUZZ_HOLDS(raw.failed || wire_properties_read(buf_bytes(&raw), &again, &e) == 0);
    buf_free(&raw);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes rest = bytes_of(data, size), lifted, again;
    uint8_t which = fuzz_take_u8(&rest);
    struct bytes first = fuzz_take_short(&rest);
    struct err e = {0};
    struct arena arena;
    struct buf headers;
    arena_init(&arena, 8 * size + 4096);
    buf_init(&headers, size + 4096);
    if (which & 1)
        wire_put_string(&headers, bytes_of_str("x-amqp-1.0-message-annotations"), first);
    if (which & 2)
        wire_put_string(&headers, bytes_of_str("x-amqp-1.0-app-properties"), rest);
    if (which & 4)
        wire_put_int64(&headers, bytes_of_str("x-delay"), 1000);
    FUZZ_HOLDS(!headers.failed);
    if (amqp10_lift(buf_bytes(&headers), &arena, &lifted, &e) == 0) {
        check_table(lifted);
        FUZZ_HOLDS(amqp10_lift(lifted, &arena, &again, &e) == 0);
        FUZZ_HOLDS(bytes_equal(lifted, again));
    } else {
        FUZZ_HOLDS(e.kind == ERR_REJECT);
        fuzz_check_reason(bytes_of_str(e.text));
    }
    buf_free(&headers);
    arena_free(&arena);
    return 0;
}
