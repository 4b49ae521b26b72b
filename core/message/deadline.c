#include "core/message/deadline.h"

#include "core/base/timestamp.h"
#include "core/message/delay.h"
#include "core/message/wire.h"

#define ALLOWED "allowed: milliseconds since 1970 as integer, float or numeric string"

enum { VALUE_TEXT_SIZE = 120 };

/* False: no point in time that can be kept. */
static bool read_value(const struct wire_field *f, int64_t *out_ms)
{
    int64_t ms;
    if (f->kind == 'T') { /* whole seconds: what was cut off is not guessed, for that could be too late */
        if (!wire_field_int(f, &ms) || __builtin_mul_overflow(ms, 1000, &ms))
            return false;
    } else if (!delay_number(f, &ms)) {
        return false;
    }
    if (ms < TIMESTAMP_MIN_MS || ms > TIMESTAMP_MAX_MS)
        return false;
    *out_ms = ms;
    return true;
}

int deadline_check(const char *what, int64_t deadline_ms, int64_t due_ms, struct err *e)
{
    char deadline[40], due[40];
    if (deadline_ms >= due_ms)
        return 0;
    return err_set(e, ERR_REJECT, "%s: %s lies before the due time %s (allowed: the due time or later)", what,
                   timestamp_format(deadline_ms, deadline, sizeof deadline),
                   timestamp_format(due_ms, due, sizeof due));
}

int deadline_read(struct bytes headers, int64_t due_ms, int64_t *out_ms, struct err *e)
{
    struct wire_field f;
    char value[VALUE_TEXT_SIZE], due[40];
    *out_ms = 0;
    if (!wire_find(headers, DEADLINE_HEADER, &f))
        return 0;
    if (!read_value(&f, out_ms))
        return err_set(e, ERR_REJECT, "%s: %s is not a point in time (" ALLOWED ")", DEADLINE_HEADER,
                       delay_describe(&f, value, sizeof value));
    if (*out_ms < due_ms)
        return err_set(e, ERR_REJECT,
                       "%s: %s lies before the due time, %s (" ALLOWED ", not before the due time)",
                       DEADLINE_HEADER, delay_describe(&f, value, sizeof value),
                       timestamp_format(due_ms, due, sizeof due));
    return 0;
}

int64_t deadline_of(struct bytes headers)
{
    struct wire_field f;
    int64_t ms;
    return wire_find(headers, DEADLINE_HEADER, &f) && read_value(&f, &ms) ? ms : 0;
}
