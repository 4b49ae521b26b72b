/* AMQP properties and header tables as they come from the wire: what can be read is written again byte for
 * byte. */
#include "core/message/delay.h"
#include "core/message/message_id.h"
#include "core/message/publish_headers.h"
#include "core/message/wire.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void check_value(const struct wire_field *f)
{
    int64_t n, number;
    double d;
    bool is_int = wire_field_int(f, &n), is_double = wire_field_double(f, &d);
    FUZZ_HOLDS(!(is_int && is_double));
    FUZZ_HOLDS(!is_int || strchr("bBsuIilLT", f->kind) != NULL);
    if (is_int && f->kind != 'T')
        FUZZ_HOLDS(delay_number(f, &number) && number == n);
    if (is_double) {
        FUZZ_HOLDS(delay_number(f, &number) == (bool)isfinite(d));
        if (fabs(d) < 1e15)
            FUZZ_HOLDS((double)number == trunc(d));
    }
}

static void check_fields(struct bytes content, bool array, int depth)
{
    struct wire_cursor c = array ? wire_array(content) : wire_table(content);
    struct wire_field f, found;
    struct buf again;
    size_t sum = 0;
    int rc;
    FUZZ_HOLDS(depth <= WIRE_DEPTH_MAX);
    buf_init(&again, content.len);
    while ((rc = wire_next(&c, &f)) == 1) {
        sum += f.entry.len;
        if (!array) {
            buf_put_u8(&again, (uint8_t)f.name.len);
            buf_put_bytes(&again, f.name);
            char *name = fuzz_text(f.name);
            FUZZ_HOLDS(strlen(name) < f.name.len || wire_find(content, name, &found));
            free(name);
        }
        wire_put_item(&again, f.kind, f.value);
        check_value(&f);
        if (f.kind == 'F' || f.kind == 'A')
            check_fields(f.value, f.kind == 'A', depth + 1);
    }
    FUZZ_HOLDS(rc == 0 && sum == content.len && !again.failed);
    FUZZ_HOLDS(bytes_equal(buf_bytes(&again), content));
    buf_free(&again);
}

static void check_stamp(struct bytes raw)
{
    const int64_t sent_ms = FUZZ_NOW_MS, received_ms = FUZZ_NOW_MS + 300;
    struct stamp_finding found = stamp_judge(raw, sent_ms, received_ms);
    if (found.verdict == STAMP_NONE)
        FUZZ_HOLDS(found.behind_ms == 0);
    if (found.verdict == STAMP_TRUSTED)
        FUZZ_HOLDS(found.behind_ms >= -STAMP_SKEW_MAX_MS && found.behind_ms <= 300 + STAMP_SKEW_MAX_MS);
    FUZZ_HOLDS(stamp_judge(raw, received_ms, sent_ms).verdict == STAMP_NONE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes raw = bytes_of(data, size);
    struct wire_properties p;
    struct message_id id;
    struct err e = {0};
    struct buf out;

    bool has_id = publish_headers_id(raw, &id);
    check_stamp(raw);
    if (wire_properties_read(raw, &p, &e) != 0) {
        FUZZ_HOLDS(!has_id);
        fuzz_check_err(&e, ERR_REJECT);
        return 0;
    }
    buf_init(&out, size + 2);
    wire_properties_write(&p, &out);
    FUZZ_HOLDS(!out.failed);
    FUZZ_HOLDS(size == 0 ? out.len == 2 : bytes_equal(buf_bytes(&out), raw));
    buf_free(&out);
    check_fields(p.headers, false, 1);
    return 0;
}
