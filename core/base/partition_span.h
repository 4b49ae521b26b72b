/* The due times and the name of a partition of messages. Each near day has a partition, and so has each later
 * month. All partitions of a month belong to the table of that month:
 *
 *   message ── message_month_202611 ── message_20261121, message_20261122, …
 *           └─ message_month_202703 ── message_202703
 *
 * So dividing a month into days locks only the month's own table. Sorted by name, partitions are sorted by
 * due time. */
#ifndef POSTDATE_CORE_BASE_PARTITION_SPAN_H
#define POSTDATE_CORE_BASE_PARTITION_SPAN_H

#include <stdbool.h>
#include <stdint.h>

#define PARTITION_NAME_SIZE 40
#define PARTITION_DATE_SIZE 16
#define PARTITION_DAYS_AHEAD 14 /* a month that begins within so many days has day partitions */

struct due_range {
    int64_t from_ms, to_ms; /* due: [from, to) */
};

/* The UTC day and month of ms (0..TIMESTAMP_MAX_MS). */
struct due_range partition_day(int64_t ms);
struct due_range partition_month(int64_t ms);
bool partition_is_month(const struct due_range *span);

/* "message_20261121"; of a month "message_202611". */
void partition_name(const struct due_range *span, char out[PARTITION_NAME_SIZE]);
/* "2026-11-21"; of a month "2026-11". Returns out. */
const char *partition_date(const struct due_range *span, char out[PARTITION_DATE_SIZE]);
/* The due times of a partition, by its name, which must be valid. */
struct due_range partition_span(const char *name);

enum partition_division { PARTITION_STAYS, PARTITION_DIVIDE, PARTITION_TOO_LARGE };
/* Whether a month's partition of that size is divided into days: before the month begins, or if it has grown
 * large. It stays undivided if it begins within two days, because messages in it may be claimed; and from 128
 * MB on, because it would be locked for too long. */
enum partition_division partition_division(const struct due_range *month, int64_t today_ms, int64_t bytes);

#endif
