/* Which due times a partition of messages has, and what it is called. Near days have one each, later months
 * too; whatever there is for a month belongs to the table of that month:
 *
 *   message ── message_month_202611 ── message_20261121, message_20261122, …
 *           └─ message_month_202703 ── message_202703
 *
 * So a month is divided into days without a lock on any table but its own. In the order of their names the
 * partitions stand in the order of their due times. */
#ifndef POSTDATE_CORE_BASE_PARTITION_SPAN_H
#define POSTDATE_CORE_BASE_PARTITION_SPAN_H

#include <stdbool.h>
#include <stdint.h>

#define PARTITION_NAME_SIZE 40
#define PARTITION_DATE_SIZE 16
#define PARTITION_DAYS_AHEAD 14 /* a month that begins sooner has days */

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
/* What one of these names stands for; the name must be one. */
struct due_range partition_span(const char *name);

enum partition_division { PARTITION_STAYS, PARTITION_DIVIDE, PARTITION_TOO_LARGE };
/* What becomes of a month's partition of that size: it is divided into days before it begins, or once it has
 * grown. When it begins in two days some of it may be claimed, and with 128 MB it would be locked for too
 * long: it stays. */
enum partition_division partition_division(const struct due_range *month, int64_t today_ms, int64_t bytes);

#endif
