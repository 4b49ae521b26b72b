#include "sql/admin/partition_internal.h"

#include "core/base/timestamp.h"
#include "sql_embedded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* To the table of its month, or where that is gone by now, to the whole. */
static int attach_again(struct pg *c, const struct partition *p, struct err *e)
{
    char parent[PARTITION_NAME_SIZE] = "message";
    return pg_take(pg_query(c, sql_query_partition_parent, PG_WITH(as_str(p->name)), e),
                   PG_ROW(PG_TO(parent)), NULL, e) >= 0
               ? partition_attach(c, parent, p->name, &p->span, e)
               : -1;
}

/* As it is now that nobody else makes or drops partitions. A row may have come to life between the look and
 * the detach; nobody can reach the table any more, so this look is final. */
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

/* Is another session at the same partition? */
static bool has_changed(struct pg *c, const struct partition *p)
{
    struct partition now;
    struct err ignored;
    int found = pg_is_broken(c) ? -1 : partition_load(c, p->name, &now, &ignored);
    return found == 0 || (found > 0 && now.attachment != p->attachment);
}

/* 1: dropped; 0: must stay; -1: error, also when others' open transactions are in the way (tried again next
 * time). A detach cannot be in a transaction, so two sessions may try it: one of them fails. */
static int drop_if_settled(struct pg *c, const struct partition *p, const struct retention *r, struct err *e)
{
    int needed = p->attachment == ATTACHED && !p->is_month_table ? holds_needed_rows(c, p, r, e) : 0;
    if (needed != 0)
        return needed < 0 ? -1 : 0;
    if (detach_partition(c, p, e) != 0) {
        if (!has_changed(c, p))
            return -1;
        err_clear(e);
        return 0;
    }
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
        int kept = p->is_month_table ? has_partitions(c, p, e) : 0;
        int done = kept != 0 ? (kept < 0 ? -1 : 0) : drop_if_settled(c, p, r, e);
        *dropped += done == 1;
        if (done < 0) { /* each by itself: one that is locked must not keep the others */
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
