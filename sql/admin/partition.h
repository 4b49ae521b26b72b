/* Partitions of postdate.message, one per UTC day of the due time. Made by `postdate migrate`, a
 * gateway's start and the janitor, dropped by the janitor; never on the intake path or in a caller's
 * transaction. */
#ifndef POSTDATE_SQL_ADMIN_PARTITION_H
#define POSTDATE_SQL_ADMIN_PARTITION_H

#include "core/base/err.h"
#include "sql/connection/pg.h"
#include <stdint.h>

#define PARTITION_NAME_SIZE 24
/* The name of the partition in which ms (0..TIMESTAMP_MAX_MS) lies: "message_20261121". */
void partition_name(int64_t ms, char out[PARTITION_NAME_SIZE]);

/* Makes missing partitions from yesterday to now + ahead_ms and two days more. Returns how many were made, or
 * -1. Two at once take turns: *missing is how many are left to another one, or to a later time, because
 * somebody has a lock for longer; never today's and those of the next two days. Where none is missing, no
 * lock is needed. */
int partitions_ensure(struct pg *c, int64_t ahead_ms, int *missing, struct err *e);

/* First instants (ms) of the partitions that hold rows, in order, those of the days in [from_ms, to_ms) (the
 * first and the last may reach beyond it), at most max. A query over one partition at a time locks few
 * relations, however many days there are. The caller frees *out_ms. Returns their number or -1. */
int partitions_filled(struct pg *c, int64_t from_ms, int64_t to_ms, int max, int64_t **out_ms, struct err *e);
int partitions_all_filled(struct pg *c, int64_t **out_ms, struct err *e);

struct retention {
    int64_t delivered_ms, cancelled_ms, failed_ms;
};

/* Drops partitions that lie in the past, hold nothing live, and whose rows are all settled longer ago than
 * their state's retention (superseded counts as cancelled, expired as failed). Never waits long for others,
 * and does not read what it drops. *dropped: how many, also when some could not be looked at or dropped (-1,
 * e names the first of them). */
int partitions_drop_settled(struct pg *c, const struct retention *r, int *dropped, struct err *e);

#endif
