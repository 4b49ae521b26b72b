
#include "sql/admin/partition.h"
#include "core/base/timestamp.h"
#include "core/message/message_id.h"
#include "sql/connection/pg_internal.h"
#include "sql_embedded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum attachment { ATTACHED, DETACH_PENDING, LOOSE };

struct partition {
    char name[PARTITION_NAME_SIZE], parent[PARTITION_NAME_SIZE]; /* its parent table; "": none */
    struct due_range span;
    bool is_month_table;
    int attachment; /* enum attachment */
};

struct partition_list {
    struct partition *items; /* half detached ones first, then by name; the caller frees it */
    int count;
};

#define PER_TRANSACTION 16 /* each new partition locks about six relations until commit */
#define DAYS_MAX 4000
#define AFTER_ALL "message_a" /* behind any digit */
#define NEAR_DAYS 2           /* without these nothing goes */

/* name NULL: all. */
static int partition_list_load(struct pg *c, const char *name, struct partition_list *list, struct err *e)
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

/* Reads its present state. 1; 0: it was dropped; -1: error. */
static int partition_load(struct pg *c, const char *name, struct partition *out, struct err *e)
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

/* Begins a transaction that alone makes, divides or drops partitions; it ends it, too, with rc (0: commit).
 */
static int partition_begin_alone(struct pg *c, const char *lock_timeout, struct err *e)
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

static int partition_end_alone(struct pg *c, int rc, struct err *e)
{
    if (rc == 0 && pg_commit(c, e) == 0)
        return 0;
    pg_rollback(c);
    return -1;
}

/* A table for these due times, not attached yet.
 * LIKE and then ATTACH: `create table … partition of` would lock the parent against claims. */
static int partition_create(struct pg *c, const struct due_range *span, struct err *e)
{
    char name[PARTITION_NAME_SIZE], text[160];
    partition_name(span, name);
    snprintf(text, sizeof text, "create table postdate.%s (like postdate.message including all)", name);
    return pg_exec(c, text, e);
}

static int partition_attach(struct pg *c, const char *parent, const char *name, const struct due_range *span,
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

/* The database's clock, as the first instant of its day. */
static int partition_today(struct pg *c, int64_t *out_ms, struct err *e)
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

/* --- A month is divided into days in one transaction, with an exclusive lock on the month: no session sees
 * it half divided; sessions that need its messages wait, or get "busy". No other table is locked.
 *
 * Rows are copied FROZEN, as only COPY can: a snapshot that is older than the days, of a function that is
 * stable or of a transaction that repeats its reads, sees them. An INSERT would hide them from it, and a
 * cancel find nothing. */

#define PAGE_ROWS 2000
#define PAGE_BYTES (INT64_C(8) * 1024 * 1024)
#define COPY_CHUNK ((size_t)256 * 1024)
#define COPY_BUFFER_MAX ((size_t)1024 * 1024 * 1024) /* one row may be large */

/* A field of a binary result has the format of COPY. */
static int put_rows(struct pg *c, struct buf *b, const PGresult *r, struct err *e)
{
    for (int row = 0; row < PQntuples(r); row++) {
        buf_put_u16(b, (uint16_t)PQnfields(r));
        for (int i = 0; i < PQnfields(r); i++) {
            if (PQgetisnull(r, row, i)) {
                buf_put_u32(b, UINT32_MAX);
                continue;
            }
            struct bytes v = pg_bytes(r, row, i);
            buf_put_u32(b, (uint32_t)v.len);
            buf_put_bytes(b, v);
        }
        if (b->len >= COPY_CHUNK && pg_copy_flush(c, b, e) != 0)
            return -1;
    }
    return 0;
}

/* The rows of the day behind *after, which moves on. How many; 0: there are no more; -1: error. */
static int copy_page(struct pg *c, const struct due_range *day, struct message_id *after, struct err *e)
{
    struct buf b;
    char name[PARTITION_NAME_SIZE], text[100];
    PGresult *r =
        pg_query(c, sql_query_partition_divide_page,
                 PG_WITH(as_id(*after), as_bound(day->to_ms), as_int4(PAGE_ROWS), as_int8(PAGE_BYTES)), e);
    int n = r ? PQntuples(r) : -1, rc = n;
    if (n > 0) {
        *after = pg_id(r, n - 1, PQfnumber(r, "id"));
        partition_name(day, name);
        snprintf(text, sizeof text, "copy postdate.%s from stdin (format binary, freeze)", name);
        buf_init(&b, COPY_BUFFER_MAX);
        rc = pg_copy_begin(c, text, &b, e);
        if (rc == 0)
            rc = pg_copy_end(c, &b, put_rows(c, &b, r, e), e) == 0 ? n : -1;
        buf_free(&b);
    }
    PQclear(r);
    return rc;
}

static int attach_days(struct pg *c, const struct partition *month, struct err *e)
{
    int rc = 0;
    for (int64_t ms = month->span.from_ms; ms < month->span.to_ms && rc == 0; ms += DAY_MS) {
        char name[PARTITION_NAME_SIZE];
        const struct due_range day = partition_day(ms);
        partition_name(&day, name);
        rc = partition_attach(c, month->parent, name, &day, e);
    }
    return rc;
}

/* Alone, and it was there a moment ago. 1: divided; 0: it need not, or cannot, be; -1: error. */
static int divide_alone(struct pg *c, const struct partition *p, int64_t today_ms,
                        struct partitions_divided *out, struct err *e)
{
    char text[200];
    int64_t bytes = pg_number(c, sql_query_partition_size, PG_WITH(as_str(p->name)), e);
    enum partition_division division = partition_division(&p->span, today_ms, bytes);
    if (bytes >= 0 && division == PARTITION_TOO_LARGE)
        snprintf(out->large, sizeof out->large, "%s", p->name);
    if (bytes < 0 || division != PARTITION_DIVIDE)
        return bytes < 0 ? -1 : 0;
    snprintf(text, sizeof text, "lock table postdate.%s in access exclusive mode", p->parent);
    int rc = pg_exec(c, text, e);
    for (int64_t ms = p->span.from_ms; ms < p->span.to_ms && rc == 0; ms += DAY_MS) {
        const struct due_range day = partition_day(ms);
        struct message_id after = message_id_floor(day.from_ms);
        int n = partition_create(c, &day, e) == 0 ? 1 : -1;
        while (n > 0)
            n = copy_page(c, &day, &after, e);
        rc = n;
    }
    snprintf(text, sizeof text, "drop table postdate.%s", p->name);
    if (rc == 0)
        rc = pg_exec(c, text, e);
    if (rc == 0)
        rc = attach_days(c, p, e);
    return rc == 0 ? 1 : -1;
}

static int divide(struct pg *c, const struct partition *p, int64_t today_ms, struct partitions_divided *out,
                  struct err *e)
{
    struct partition now;
    if (partition_begin_alone(c, "500ms", e) != 0)
        return -1;
    int rc = partition_load(c, p->name, &now, e);
    if (rc > 0 && now.attachment != ATTACHED)
        rc = 0;
    if (rc > 0)
        rc = pg_go_by_index(c, e) == 0 ? divide_alone(c, &now, today_ms, out, e) : -1;
    return partition_end_alone(c, rc < 0 ? -1 : 0, e) == 0 ? rc : -1;
}

int partitions_divide(struct pg *c, struct partitions_divided *out, struct err *e)
{
    struct partition_list list = {0};
    int64_t today_ms;
    *out = (struct partitions_divided){0};
    if (partition_today(c, &today_ms, e) != 0 || partition_list_load(c, NULL, &list, e) != 0)
        return -1;
    int rc = 0;
    for (int i = 0; i < list.count && rc == 0; i++) {
        const struct partition *p = &list.items[i];
        if (p->is_month_table || p->attachment != ATTACHED || !partition_is_month(&p->span) ||
            strcmp(p->parent, "message") == 0)
            continue;
        int done = divide(c, p, today_ms, out, e);
        out->months += done == 1;
        if (done < 0 && pg_is_locked_out(c)) {
            out->locked = true;
            err_clear(e);
        } else if (done < 0) {
            rc = err_wrap(e, "postdate.%s", p->name);
        }
    }
    free(list.items);
    return rc;
}

/* 1: holds a row that is live or younger than its retention; 0: none; -1: error. */
static int holds_needed_rows(struct pg *c, const struct partition *p, const struct retention *r,
                             struct err *e)
{
    return (int)pg_number(
        c, sql_query_partition_needed,
        PG_WITH(as_str(p->name), as_int8(r->delivered_ms), as_int8(r->failed_ms), as_int8(r->cancelled_ms)),
        e);
}

/* Of a table of a month. 1 or 0; -1: error. */
static int has_partitions(struct pg *c, const struct partition *month, struct err *e)
{
    return (int)pg_number(c, sql_query_partition_has, PG_WITH(as_str(month->name)), e);
}

static int detach_partition(struct pg *c, const struct partition *p, struct err *e)
{
    char text[160];
    if (p->attachment == LOOSE)
        return 0;
    snprintf(text, sizeof text, "alter table postdate.%s detach partition postdate.%s %s", p->parent, p->name,
             p->attachment == DETACH_PENDING ? "finalize" : "concurrently");
    return pg_exec(c, text, e);
}

/* To the table of its month or, if that was dropped, to the parent table. */
static int attach_again(struct pg *c, const struct partition *p, struct err *e)
{
    char parent[PARTITION_NAME_SIZE] = "message";
    return pg_take(pg_query(c, sql_query_partition_parent, PG_WITH(as_str(p->name)), e),
                   PG_ROW(PG_TO(parent)), NULL, e) >= 0
               ? partition_attach(c, parent, p->name, &p->span, e)
               : -1;
}

/* Reads its state again, now that no other session creates or drops partitions. A row may have become live
 * between the check and the detach; after the detach no session can reach the table, so this check is final.
 */
static int drop_loose(struct pg *c, const char *name, const struct retention *r, struct err *e)
{
    struct partition p;
    char text[160];
    int found = partition_load(c, name, &p, e);
    if (found <= 0 || p.attachment != LOOSE)
        return found < 0 ? -1 : 0;
    int needed = p.is_month_table ? has_partitions(c, &p, e) : holds_needed_rows(c, &p, r, e);
    snprintf(text, sizeof text, "select postdate.recur_keep('%1$s'); drop table postdate.%1$s", name);
    if (p.is_month_table)
        snprintf(text, sizeof text, "drop table postdate.%s", name);
    int rc = needed < 0 ? -1 : needed ? attach_again(c, &p, e) : pg_exec(c, text, e);
    return rc == 0 ? needed == 0 : -1;
}

static const struct partition *find_partition(const struct partition_list *list, const char *name)
{
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->items[i].name, name) == 0)
            return &list->items[i];
    return NULL;
}

/* Did another session detach it meanwhile or, if that is why it failed, begin with one of its siblings? One
 * at a time may be on its way out of a table. What this session detached is LOOSE in `before`. */
static bool is_anothers(struct pg *c, const struct partition_list *before, const struct partition *p)
{
    struct partition_list after = {0};
    bool premature = pg_is_premature(c), found = false;
    if (pg_is_broken(c) || partition_list_load(c, NULL, &after, NULL) != 0)
        return false;
    for (int i = 0; i < before->count && !found; i++) {
        const struct partition *was = &before->items[i], *now = find_partition(&after, was->name);
        bool concerns = was == p || (premature && strcmp(was->parent, p->parent) == 0);
        bool left = was->attachment != LOOSE && (!now || now->attachment == LOOSE);
        found = concerns && (left || (premature && now && now->attachment != was->attachment));
    }
    free(after.items);
    return found;
}

/* 1: dropped; 0: must stay; -1: error, also if blocked by open transactions (retried next time). A detach
 * cannot be in a transaction, so two sessions may try it: one of them fails. */
static int drop_if_settled(struct pg *c, struct partition *p, const struct retention *r, struct err *e)
{
    int needed = p->attachment == ATTACHED && !p->is_month_table ? holds_needed_rows(c, p, r, e) : 0;
    if (needed != 0)
        return needed < 0 ? -1 : 0;
    if (detach_partition(c, p, e) != 0)
        return -1;
    p->attachment = LOOSE;
    if (partition_begin_alone(c, "2s", e) != 0)
        return -1;
    int dropped = drop_loose(c, p->name, r, e);
    return partition_end_alone(c, dropped < 0 ? -1 : 0, e) == 0 ? dropped : -1;
}

int partitions_drop_settled(struct pg *c, const struct retention *r, int *dropped, struct err *e)
{
    int64_t today_ms, least_ms = r->delivered_ms;
    least_ms = r->cancelled_ms < least_ms ? r->cancelled_ms : least_ms;
    least_ms = r->failed_ms < least_ms ? r->failed_ms : least_ms;
    struct partition_list list = {0};
    struct err first = {0};
    *dropped = 0;
    if (partition_today(c, &today_ms, e) != 0 || partition_list_load(c, NULL, &list, e) != 0)
        return -1;
    int rc = pg_exec(c, "set statement_timeout = '60s'", e);
    for (int i = 0; i < list.count && rc == 0; i++) {
        struct partition *p = &list.items[i];
        bool past = p->span.to_ms < today_ms && p->span.to_ms + least_ms < today_ms + DAY_MS;
        if (!past && p->attachment == ATTACHED)
            continue;
        int kept = p->is_month_table && p->attachment == ATTACHED ? has_partitions(c, p, e) : 0;
        pg_forget_failure(c);
        int done = kept != 0 ? (kept < 0 ? -1 : 0) : drop_if_settled(c, p, r, e);
        *dropped += done == 1;
        if (done < 0 && is_anothers(c, &list, p)) {
            err_clear(e);
        } else if (done < 0) { /* each by itself: one that is locked must not keep the others */
            err_wrap(e, "postdate.%s", p->name);
            first = first.kind == ERR_NONE ? *e : first;
            rc = pg_is_broken(c) ? -1 : 0;
        }
    }
    free(list.items);
    if (!pg_is_broken(c))
        pg_exec(c, "reset statement_timeout", NULL);
    if (first.kind != ERR_NONE)
        *e = first;
    return rc == 0 && first.kind == ERR_NONE ? 0 : -1;
}
