#include "core/message/stamp.h"
#include "core/message/wire.h"

#define FORGED_MS 1

void stamp_put_probe(struct buf *properties)
{
    const struct wire_properties p = {.flags = WIRE_HEADERS | WIRE_DELIVERY_MODE, .delivery_mode = 1};
    size_t headers = wire_properties_begin(&p, properties);
    wire_put_int64(properties, bytes_of_str(STAMP_HEADER), FORGED_MS);
    wire_properties_end(&p, headers, properties);
}

struct stamp_finding stamp_judge(struct bytes properties, int64_t sent_ms, int64_t received_ms)
{
    const struct stamp_finding none = {.verdict = STAMP_NONE};
    struct wire_properties p;
    struct wire_field f;
    int64_t stamp_ms;

    if (wire_properties_read(properties, &p, NULL) != 0 || !(p.flags & WIRE_HEADERS) ||
        !wire_find(p.headers, STAMP_HEADER, &f) || f.kind == 'T' || !wire_field_int(&f, &stamp_ms) ||
        stamp_ms <= FORGED_MS || sent_ms > received_ms)
        return none;
    if (__builtin_sub_overflow(received_ms, stamp_ms, &(int64_t){0}))
        return none;
    int64_t behind_ms = received_ms - stamp_ms;
    /* With clocks that agree the stamp lies between sent and received. */
    if (stamp_ms < sent_ms - STAMP_SKEW_MAX_MS || stamp_ms > received_ms + STAMP_SKEW_MAX_MS)
        return (struct stamp_finding){STAMP_SKEWED, behind_ms};
    return (struct stamp_finding){STAMP_TRUSTED, behind_ms};
}
