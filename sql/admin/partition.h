/* Partitions of postdate.message (their bounds and names: core/base/partition_span.h). Created by `postdate
 * migrate`, at a gateway's start and by the janitor; divided and dropped by the janitor; never by the intake
 * or in a caller's transaction. */
#ifndef POSTDATE_SQL_ADMIN_PARTITION_H
#define POSTDATE_SQL_ADMIN_PARTITION_H

#include "core/base/err.h"
#include "core/base/partition_span.h"
#include "sql/connection/pg.h"
#include <stdint.h>

/* Creates missing partitions from yesterday to now + ahead_ms and two days more. Returns the number created,
 * or -1. Concurrent calls run one after the other. *missing: the number left to another session or a later
 * call because of a long-held lock; never those of today and the next two days. If none is missing, no lock
 * is needed. */
int partitions_ensure(struct pg *c, int64_t ahead_ms, int *missing, struct err *e);

struct partitions_divided {
    int months;                      /* that were divided into days */
    bool locked;                     /* another month must be divided, but is locked: call again */
    char large[PARTITION_NAME_SIZE]; /* a month that is too large to be divided; "": none */
};
/* Divides months that begin soon, or are no longer small, into days (partition_division). -1: error, e names
 * the month. */
int partitions_divide(struct pg *c, struct partitions_divided *out, struct err *e);

/* The non-empty partitions, in order, with due times in [from_ms, to_ms) (the first and the last may reach
 * beyond it), at most max. A query over one partition at a time locks few relations, however many there are.
 * The caller frees *out. Returns their number or -1. */
int partitions_filled(struct pg *c, int64_t from_ms, int64_t to_ms, int max, struct due_range **out,
                      struct err *e);
int partitions_all_filled(struct pg *c, struct due_range **out, struct err *e);

struct retention {
    int64_t delivered_ms, cancelled_ms, failed_ms;
};

/* Drops partitions that are in the past, have no live rows, and whose rows were all settled before the
 * retention of their state (superseded counts as cancelled, expired as failed). Never waits long for locks,
 * and does not read the dropped rows. *dropped: how many, also if some could not be checked or dropped (-1, e
 * names the first of them). */
int partitions_drop_settled(struct pg *c, const struct retention *r, int *dropped, struct err *e);

#endif
