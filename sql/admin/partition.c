#include "sql/admin/partition_internal.h"

#include "core/base/timestamp.h"
#include "core/message/message_id.h"
#include "sql_embedded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PER_TRANSACTION 16 /* each new partition locks about six relations until commit */
#define DAYS_MAX 4000
#define AFTER_ALL "message_a" /* behind any digit */
#define NEAR_DAYS 2           /* without these nothing goes */

int partition_list_load(struct pg *c, const char *name, struct partition_list *list, struct err *e)
{
    struct partition p = {.name = ""};
    const struct pg_rows rows = {
        PG_ROW(PG_TO(p.name), PG_TO(p.attachment), PG_TO(p.parent), PG_TO(p.is_month_table)), &p, sizeof p,
        NULL};
    list->count =
        pg_take_all(pg_query(c, sql_query_partition_list, PG_WITH(as_str(name)), e), &rows, &list->items, e);
    for (int i = 0; i < list->count; i++)
        list->items[i].span = partition_span(list->items[i].name);
    return list->count < 0 ? -1 : 0;
}

int partition_load(struct pg *c, const char *name, struct partition *out, struct err *e)
{
    struct partition_list list = {0};
    if (partition_list_load(c, name, &list, e) != 0)
        return -1;
    int found = list.count > 0;
    if (found)
        *out = list.items[0];
    free(list.items);
    return found;
}

int partition_begin_alone(struct pg *c, const char *lock_timeout, struct err *e)
{
    char text[160];
    snprintf(text, sizeof text,
             "begin; set local lock_timeout = '%s';"
             " select from postdate.gate where name = 'partitions' for update",
             lock_timeout);
    if (pg_exec(c, text, e) == 0)
        return 0;
    pg_rollback(c);
    return -1;
}

int partition_end_alone(struct pg *c, int rc, struct err *e)
{
    if (rc == 0 && pg_commit(c, e) == 0)
        return 0;
    pg_rollback(c);
    return -1;
}

/* LIKE and then ATTACH: `create table … partition of` would lock the parent against claims. */
int partition_create(struct pg *c, const struct due_range *span, struct err *e)
{
    char name[PARTITION_NAME_SIZE], text[160];
    partition_name(span, name);
    snprintf(text, sizeof text, "create table postdate.%s (like postdate.message including all)", name);
    return pg_exec(c, text, e);
}

int partition_attach(struct pg *c, const char *parent, const char *name, const struct due_range *span,
                     struct err *e)
{
    char from[MESSAGE_ID_TEXT_SIZE], to[MESSAGE_ID_TEXT_SIZE], text[320];
    snprintf(text, sizeof text,
             "alter table postdate.%s attach partition postdate.%s for values from ('%s') to ('%s')", parent,
             name, message_id_format(message_id_floor(span->from_ms), from),
             message_id_format(message_id_floor(span->to_ms), to));
    return pg_exec(c, text, e);
}

/* How many are missing; up to most of them are made. */
static int make_some(struct pg *c, int64_t days, int most, struct err *e)
{
    return (int)pg_number(c, sql_query_partition_make, PG_WITH(as_int4((int32_t)days), as_int4(most)), e);
}

static int make_missing(struct pg *c, int64_t days, const char *timeout, struct err *e)
{
    int made = 0, n;
    do {
        if (partition_begin_alone(c, timeout, e) != 0)
            return -1;
        n = make_some(c, days, PER_TRANSACTION, e);
        n = partition_end_alone(c, n < 0 ? -1 : 0, e) == 0 ? n : -1;
        made += n < PER_TRANSACTION ? n : PER_TRANSACTION;
    } while (n > PER_TRANSACTION);
    return n < 0 ? -1 : made;
}

int partition_today(struct pg *c, int64_t *out_ms, struct err *e)
{
    int64_t now_ms = 0;
    int rc = pg_ask(c, sql_query_store_clock, NULL, PG_ROW(PG_TIME(now_ms)), e);
    *out_ms = partition_day(now_ms).from_ms;
    return rc;
}

int partitions_ensure(struct pg *c, int64_t ahead_ms, int *missing, struct err *e)
{
    int64_t days = ahead_ms / DAY_MS + 3;
    days = days < DAYS_MAX ? days : DAYS_MAX;
    *missing = make_some(c, days, 0, e);
    int soon = *missing > 0 ? make_some(c, NEAR_DAYS, 0, e) : 0;
    if (*missing <= 0 || soon < 0)
        return *missing < 0 || soon < 0 ? -1 : 0;
    int made = make_missing(c, days, soon > 0 ? "5s" : "500ms", e);
    bool others_turn = made < 0 && soon == 0 && pg_is_locked_out(c);
    bool can_wait = made < 0 && soon == 0 && !pg_is_broken(c);
    if (others_turn)
        err_clear(e);
    else if (!can_wait)
        *missing = 0;
    return others_turn ? 0 : made;
}

int partitions_filled(struct pg *c, int64_t from_ms, int64_t to_ms, int max, struct due_range **out,
                      struct err *e)
{
    char first[PARTITION_NAME_SIZE], end[PARTITION_NAME_SIZE] = AFTER_ALL;
    const struct due_range month = partition_month(from_ms > TIMESTAMP_MIN_MS ? from_ms : TIMESTAMP_MIN_MS);
    partition_name(&month, first);
    if (to_ms <= TIMESTAMP_MAX_MS - DAY_MS) {
        const struct due_range after =
            partition_day(to_ms > TIMESTAMP_MIN_MS ? to_ms + DAY_MS - 1 : TIMESTAMP_MIN_MS);
        partition_name(&after, end);
    }
    struct due_range span;
    const struct pg_rows rows = {PG_ROW(PG_TIME(span.from_ms), PG_TIME(span.to_ms)), &span, sizeof span,
                                 NULL};
    return pg_take_all(
        pg_query(c, sql_query_partition_filled,
                 PG_WITH(as_str(first), as_str(end), as_int4(max), as_time(from_ms), as_time(to_ms)), e),
        &rows, out, e);
}

int partitions_all_filled(struct pg *c, struct due_range **out, struct err *e)
{
    return partitions_filled(c, TIMESTAMP_MIN_MS, INT64_MAX, INT32_MAX, out, e);
}
