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

int partition_list_load(struct pg *c, struct partition_list *list, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_partition_list, NULL, e);
    if (!r)
        return -1;
    int n = PQntuples(r);
    list->count = 0;
    list->items = calloc((size_t)n + 1, sizeof *list->items);
    if (!list->items) {
        PQclear(r);
        return err_set(e, ERR_BUG, "out of memory");
    }
    for (int i = 0; i < n; i++) {
        struct partition *p = &list->items[list->count++];
        pg_text(r, i, 0, p->name, sizeof p->name);
        p->attachment = pg_bool(r, i, 1) ? ATTACHED : pg_bool(r, i, 2) ? DETACH_PENDING : LOOSE;
        pg_text(r, i, 3, p->parent, sizeof p->parent);
        p->is_month_table = pg_bool(r, i, 4);
        p->span = partition_span(p->name);
    }
    PQclear(r);
    return 0;
}

const struct partition *partition_list_find(const struct partition_list *list, const char *name)
{
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->items[i].name, name) == 0)
            return &list->items[i];
    return NULL;
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

static int make_month_table(struct pg *c, const char *name, const struct due_range *month, struct err *e)
{
    char text[160];
    snprintf(text, sizeof text,
             "create table postdate.%s (like postdate.message including all) partition by range (id)", name);
    return pg_exec(c, text, e) == 0 ? partition_attach(c, "message", name, month, e) : -1;
}

const char *partition_parent(const struct partition_list *list, const struct due_range *month)
{
    const char *parent = NULL;
    for (int i = 0; i < list->count; i++) {
        const struct partition *p = &list->items[i];
        if (p->span.from_ms < month->from_ms || p->span.to_ms > month->to_ms)
            continue;
        if (p->is_month_table && p->attachment == ATTACHED)
            return p->name;
        if (strcmp(p->parent, "message") == 0)
            parent = "message";
    }
    return parent;
}

static int make_partition(struct pg *c, const struct due_range *span, struct err *e)
{
    struct partition_list list = {0};
    const struct due_range month = partition_month(span->from_ms);
    char table[PARTITION_NAME_SIZE], name[PARTITION_NAME_SIZE];
    partition_month_table(span->from_ms, table);
    partition_name(span, name);
    int rc = partition_list_load(c, &list, e);
    const char *parent = rc == 0 ? partition_parent(&list, &month) : NULL;
    if (rc == 0 && !parent) {
        rc = make_month_table(c, table, &month, e);
        parent = table;
    }
    if (rc == 0)
        rc = partition_create(c, span, e);
    if (rc == 0)
        rc = partition_attach(c, parent, name, span, e);
    free(list.items);
    return rc;
}

/* Is it in days, or to be so? */
static bool has_days(const struct partition_list *list, const struct due_range *month, int64_t today_ms)
{
    bool days = month->from_ms <= today_ms + PARTITION_DAYS_AHEAD * DAY_MS;
    for (int i = 0; i < list->count && !days; i++) {
        const struct due_range *span = &list->items[i].span;
        days = !partition_is_month(span) && span->from_ms >= month->from_ms && span->to_ms <= month->to_ms;
    }
    return days;
}

/* *out: the partition that has due_ms, or should have it. Is it missing? */
static bool is_missing(const struct partition_list *list, int64_t today_ms, int64_t due_ms,
                       struct due_range *out)
{
    for (int i = 0; i < list->count; i++) {
        const struct partition *p = &list->items[i];
        *out = p->span;
        if (!p->is_month_table && due_ms >= out->from_ms && due_ms < out->to_ms)
            return false;
    }
    *out = partition_month(due_ms);
    if (has_days(list, out, today_ms))
        *out = partition_day(due_ms);
    return true;
}

/* How many partitions are missing from yesterday to last_ms; -1: error. The first ones are put into missing,
 * max at most. */
static int find_missing(struct pg *c, int64_t today_ms, int64_t last_ms, struct due_range *missing, int max,
                        struct err *e)
{
    struct partition_list list = {0};
    struct due_range span;
    int n = 0;
    if (partition_list_load(c, &list, e) != 0)
        return -1;
    for (int64_t ms = today_ms - DAY_MS; ms <= last_ms; ms = span.to_ms) {
        if (!is_missing(&list, today_ms, ms, &span))
            continue;
        if (n < max)
            missing[n] = span;
        n++;
    }
    free(list.items);
    return n;
}

/* Up to PER_TRANSACTION of those that are missing now; returns how many. */
static int make_some(struct pg *c, int64_t today_ms, int64_t last_ms, const char *timeout, struct err *e)
{
    struct due_range missing[PER_TRANSACTION];
    if (partition_begin_alone(c, timeout, e) != 0)
        return -1;
    int n = find_missing(c, today_ms, last_ms, missing, PER_TRANSACTION, e), rc = n < 0 ? -1 : 0;
    n = n < PER_TRANSACTION ? n : PER_TRANSACTION;
    for (int i = 0; i < n && rc == 0; i++)
        rc = make_partition(c, &missing[i], e);
    return partition_end_alone(c, rc, e) == 0 ? n : -1;
}

static int make_missing(struct pg *c, int64_t today_ms, int64_t last_ms, const char *timeout, struct err *e)
{
    int made = 0, n;
    do {
        n = make_some(c, today_ms, last_ms, timeout, e);
        made += n;
    } while (n == PER_TRANSACTION);
    return n < 0 ? -1 : made;
}

int partition_today(struct pg *c, int64_t *out_ms, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_store_clock, NULL, e);
    if (!r)
        return -1;
    *out_ms = partition_day(pg_time_ms(r, 0, 0)).from_ms;
    PQclear(r);
    return 0;
}

int partitions_ensure(struct pg *c, int64_t ahead_ms, int *missing, struct err *e)
{
    int64_t today_ms;
    if (partition_today(c, &today_ms, e) != 0)
        return -1;
    int64_t days = ahead_ms / DAY_MS + 3, last_ms = today_ms + (days < DAYS_MAX ? days : DAYS_MAX) * DAY_MS;
    *missing = find_missing(c, today_ms, last_ms, NULL, 0, e);
    int soon = *missing > 0 ? find_missing(c, today_ms, today_ms + NEAR_DAYS * DAY_MS, NULL, 0, e) : 0;
    if (*missing <= 0 || soon < 0)
        return *missing < 0 || soon < 0 ? -1 : 0;
    int made = make_missing(c, today_ms, last_ms, soon > 0 ? "5s" : "500ms", e);
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
    PGresult *r =
        pg_query(c, sql_query_partition_filled,
                 PG_WITH(as_str(first), as_str(end), as_int4(max), as_time(from_ms), as_time(to_ms)), e);
    if (!r)
        return -1;
    int n = PQntuples(r);
    *out = calloc((size_t)n + 1, sizeof **out);
    for (int i = 0; *out && i < n; i++)
        (*out)[i] = (struct due_range){pg_time_ms(r, i, 0), pg_time_ms(r, i, 1)};
    PQclear(r);
    return *out ? n : err_set(e, ERR_BUG, "out of memory");
}

int partitions_all_filled(struct pg *c, struct due_range **out, struct err *e)
{
    return partitions_filled(c, TIMESTAMP_MIN_MS, INT64_MAX, INT32_MAX, out, e);
}
