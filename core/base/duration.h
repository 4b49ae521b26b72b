/* Durations as users write them in the configuration and on command lines. */
#ifndef POSTDATE_CORE_BASE_DURATION_H
#define POSTDATE_CORE_BASE_DURATION_H

#include "core/base/err.h"
#include <stddef.h>
#include <stdint.h>

/* "250ms", "90s", "15m", "36h", "30d", sums of those largest first ("1h30m"), or ISO 8601 ("PT15M", "P1DT2H",
 * "P2W", decimal fractions in the last component only; years and months are rejected, because their length
 * varies). Whole milliseconds, >= 0, at most 100 years. ERR_REJECT names the text and what is allowed. */
int duration_parse(const char *text, int64_t *out_ms, struct err *e);

/* Shortest exact form, such as "26h", "1h30m", "500ms", "0s". */
const char *duration_format(int64_t ms, char *out, size_t out_size);

/* For users: one or two units, rounded: "14 min", "2 h 5 min", "3 d 4 h", "850 ms". */
const char *duration_format_human(int64_t ms, char *out, size_t out_size);

/* Byte sizes "8MiB", "512KiB", "1GiB", "4096", "4096B". */
int size_parse(const char *text, uint64_t *out_bytes, struct err *e);

#endif
