/* A month becomes days in one transaction, which has the month alone: nobody sees it half divided, and who
 * wants one of its messages waits, or is told that it is busy. No other table is locked.
 *
 * Rows are copied FROZEN, as only COPY can: a snapshot that is older than the days, of a function that is
 * stable or of a transaction that repeats its reads, sees them. An INSERT would hide them from it, and a
 * cancel find nothing. */
#include "sql/admin/partition_internal.h"

#include "core/base/timestamp.h"
#include "core/message/message_id.h"
#include "sql_embedded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_ROWS 2000
#define PAGE_BYTES (INT64_C(8) * 1024 * 1024)
#define COPY_CHUNK ((size_t)256 * 1024)
#define COPY_BUFFER_MAX ((size_t)1024 * 1024 * 1024) /* one row may be large */

/* What a binary result has for a field is what COPY takes for it. */
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

static int make_day(struct pg *c, const struct due_range *day, struct err *e)
{
    struct message_id after = message_id_floor(day->from_ms);
    int n = partition_create(c, day, e) == 0 ? 1 : -1;
    while (n > 0)
        n = copy_page(c, day, &after, e);
    return n;
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
        rc = make_day(c, &day, e);
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
