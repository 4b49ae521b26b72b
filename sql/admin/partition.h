/* Partitions of postdate.message: which there are is in core/base/partition_span.h. Made by `postdate
 * migrate`, a gateway's start and the janitor, divided and dropped by the janitor; never on the intake path
 * or in a caller's transaction. */
#ifndef POSTDATE_SQL_ADMIN_PARTITION_H
#define POSTDATE_SQL_ADMIN_PARTITION_H

#include "core/base/err.h"
#include "core/base/partition_span.h"
#include "sql/connection/pg.h"
#include <stdint.h>

/* Makes missing partitions from yesterday to now + ahead_ms and two days more. Returns how many were made, or
 * -1. Two at once take turns: *missing is how many are left to another one, or to a later time, because
 * somebody has a lock for longer; never today's and those of the next two days. Where none is missing, no
 * lock is needed. */
int partitions_ensure(struct pg *c, int64_t ahead_ms, int *missing, struct err *e);

struct partitions_divided {
    int months;                      /* that have days now */
    bool locked;                     /* another one is due and somebody has it locked: to be tried again */
    char large[PARTITION_NAME_SIZE]; /* one that holds too much, and stays as it is; "": none */
};
/* Divides months into days that begin soon, or hold more than a little. A month that begins in two days stays
 * as it is: what it holds may be claimed. -1: error, e names the month. */
int partitions_divide(struct pg *c, struct partitions_divided *out, struct err *e);

/* The partitions that hold rows, in order, of those with due times in [from_ms, to_ms) (the first and the
 * last may reach beyond it), at most max. A query over one partition at a time locks few relations, however
 * many there are. The caller frees *out. Returns their number or -1. */
int partitions_filled(struct pg *c, int64_t from_ms, int64_t to_ms, int max, struct due_range **out,
                      struct err *e);
int partitions_all_filled(struct pg *c, struct due_range **out, struct err *e);

struct retention {
    int64_t delivered_ms, cancelled_ms, failed_ms;
};

/* Drops partitions that lie in the past, hold nothing live, and whose rows are all settled longer ago than
 * their state's retention (superseded counts as cancelled, expired as failed). Never waits long for others,
 * and does not read what it drops. *dropped: how many, also when some could not be looked at or dropped (-1,
 * e names the first of them). */
int partitions_drop_settled(struct pg *c, const struct retention *r, int *dropped, struct err *e);

#endif
