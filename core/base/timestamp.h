/* Points in time: int64_t milliseconds since 1970-01-01T00:00:00Z. */
#ifndef POSTDATE_CORE_BASE_TIMESTAMP_H
#define POSTDATE_CORE_BASE_TIMESTAMP_H

#include "core/base/err.h"
#include <stddef.h>
#include <stdint.h>

#define TIMESTAMP_MIN_MS INT64_C(0)               /* 1970-01-01 */
#define TIMESTAMP_MAX_MS INT64_C(253402300799999) /* 9999-12-31T23:59:59.999Z; fits the 48 bits of an id */
#define DAY_MS INT64_C(86400000)

/* RFC 3339 with an offset ("2026-11-22T08:00:00Z", "...08:00:00.250+01:00"; 't', 'z' and a space for 'T'
 * allowed). Fractions finer than a millisecond round UP (never early). Leap second :60 counts as :59.999 + 1
 * ms. ERR_REJECT names the text and what is allowed (also for a missing offset). */
int timestamp_parse(const char *text, int64_t *out_ms, struct err *e);

/* "2026-11-22T08:00:00.000Z" */
const char *timestamp_format(int64_t ms, char *out, size_t out_size);

#endif
