#include "sql/admin/partition.h"

#include "core/base/timestamp.h"
#include "core/message/message_id.h"
#include "sql/connection/pg_internal.h"
#include "sql_embedded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PER_TRANSACTION 16 /* each new partition locks about six relations until commit */
#define DAYS_MAX 4000
#define AFTER_ALL "message_a" /* behind any digit */
#define NEAR_DAYS 2           /* without these nothing goes */

enum attachment { ATTACHED, DETACH_PENDING, LOOSE };

struct partition {
    char name[24];
    int64_t day; /* days since 1970 */
    enum attachment attachment;
};

struct partition_list {
    struct partition *items;
    int count;
};

static int64_t day_of_name(const char *name)
{
    /* Civil date to days, after Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms". */
    int64_t date = strtoll(name + strlen("message_"), NULL, 10);
    int64_t y = date / 10000, m = date / 100 % 100, d = date % 100;
    y -= m <= 2;
    int64_t era = y / 400, yoe = y - era * 400;
    int64_t doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

/* "20261121" and "2026-11-21" of a day number. */
static void day_texts(int64_t day, char compact[16], char iso[40])
{
    timestamp_format(day * DAY_MS, iso, 40);
    iso[10] = '\0';
    snprintf(compact, 16, "%.4s%.2s%.2s", iso, iso + 5, iso + 8);
}

void partition_name(int64_t ms, char out[PARTITION_NAME_SIZE])
{
    char compact[16], iso[40];
    day_texts(ms / DAY_MS, compact, iso);
    snprintf(out, PARTITION_NAME_SIZE, "message_%s", compact);
}

static int list_load(struct pg *c, struct partition_list *list, struct err *e)
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
        p->day = day_of_name(p->name);
        p->attachment = pg_bool(r, i, 1) ? ATTACHED : pg_bool(r, i, 2) ? DETACH_PENDING : LOOSE;
    }
    PQclear(r);
    return 0;
}

static bool list_has(const struct partition_list *list, int64_t day)
{
    for (int i = 0; i < list->count; i++)
        if (list->items[i].day == day)
            return true;
    return false;
}

/* Begins a transaction that alone makes or drops partitions. */
static int begin_alone(struct pg *c, const char *timeout, struct err *e)
{
    char text[160];
    snprintf(text, sizeof text,
             "begin; set local lock_timeout = '%s';"
             " select from postdate.gate where name = 'partitions' for update",
             timeout);
    if (pg_exec(c, text, e) == 0)
        return 0;
    pg_rollback(c);
    return -1;
}

static int end_alone(struct pg *c, int rc, struct err *e)
{
    if (rc == 0 && pg_commit(c, e) == 0)
        return 0;
    pg_rollback(c);
    return -1;
}

/* LIKE and then ATTACH: `create table … partition of` would lock the parent against claims. */
static int make_partition(struct pg *c, int64_t day, struct err *e)
{
    char compact[16], iso[40], from[MESSAGE_ID_TEXT_SIZE], to[MESSAGE_ID_TEXT_SIZE], text[512];
    day_texts(day, compact, iso);
    message_id_format(message_id_floor(day * DAY_MS), from);
    message_id_format(message_id_floor((day + 1) * DAY_MS), to);
    snprintf(text, sizeof text,
             "create table postdate.message_%s (like postdate.message including all);"
             "alter table postdate.message attach partition postdate.message_%s"
             " for values from ('%s') to ('%s')",
             compact, compact, from, to);
    return pg_exec(c, text, e);
}

/* Up to PER_TRANSACTION of those that are missing now; returns how many. */
static int make_some(struct pg *c, int64_t first, int64_t last, const char *timeout, struct err *e)
{
    struct partition_list list = {0};
    if (begin_alone(c, timeout, e) != 0)
        return -1;
    int made = 0, rc = list_load(c, &list, e);
    for (int64_t day = first; day <= last && rc == 0 && made < PER_TRANSACTION; day++) {
        if (list_has(&list, day))
            continue;
        rc = make_partition(c, day, e);
        made++;
    }
    free(list.items);
    return end_alone(c, rc, e) == 0 ? made : -1;
}

static int make_missing(struct pg *c, int64_t first, int64_t last, const char *timeout, struct err *e)
{
    int made = 0, n;
    do {
        n = make_some(c, first, last, timeout, e);
        made += n;
    } while (n == PER_TRANSACTION);
    return n < 0 ? -1 : made;
}

/* How many days have none; from the catalogs, so it waits for nobody. -1: error. */
static int count_missing(struct pg *c, int64_t first, int64_t last, struct err *e)
{
    struct partition_list list = {0};
    if (list_load(c, &list, e) != 0)
        return -1;
    int missing = 0;
    for (int64_t day = first; day <= last; day++)
        missing += !list_has(&list, day);
    free(list.items);
    return missing;
}

static int read_today(struct pg *c, int64_t *day, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_store_clock, NULL, e);
    if (!r)
        return -1;
    *day = pg_time_ms(r, 0, 0) / DAY_MS;
    PQclear(r);
    return 0;
}

int partitions_ensure(struct pg *c, int64_t ahead_ms, int *missing, struct err *e)
{
    int64_t now;
    if (read_today(c, &now, e) != 0)
        return -1;
    int64_t days = ahead_ms / DAY_MS + 3, last = now + (days < DAYS_MAX ? days : DAYS_MAX);
    *missing = count_missing(c, now - 1, last, e);
    int soon = *missing > 0 ? count_missing(c, now - 1, now + NEAR_DAYS, e) : 0;
    if (*missing <= 0 || soon < 0)
        return *missing < 0 || soon < 0 ? -1 : 0;
    int made = make_missing(c, now - 1, last, soon > 0 ? "5s" : "500ms", e);
    bool others_turn = made < 0 && soon == 0 && pg_is_locked_out(c);
    bool can_wait = made < 0 && soon == 0 && !pg_is_broken(c);
    if (others_turn)
        err_clear(e);
    else if (!can_wait)
        *missing = 0;
    return others_turn ? 0 : made;
}

/* 1: holds a row that is live or younger than its retention; 0: none; -1: error. Looks at indexes and at no
 * more than one row of the table, however large it is: what is not in message_kept was delivered within an
 * hour of its due time. */
static int holds_needed_rows(struct pg *c, const struct partition *p, const struct retention *r,
                             struct err *e)
{
    static const char look[] =
        "select exists (select from postdate.%1$s where owner is null and settled_at is null)"
        " or exists (select from postdate.%1$s where owner is not null)"
        " or exists (select from "
        "unnest('{delivered,failed,cancelled,superseded,expired}'::postdate.message_state[],"
        " array[%2$lld, %3$lld, %4$lld, %4$lld, %3$lld]::int8[]) k (state, ms) where exists"
        " (select from postdate.%1$s m where m.state = k.state and m.settled_at > now() - k.ms * interval '1 "
        "ms'"
        " and m.settled_at is not null and (m.state <> 'delivered' or m.settled_at - m.due > interval '1 "
        "hour')))"
        " or (exists (select from postdate.%1$s) and timestamptz '%5$s 00:00+00' + interval '1 hour'"
        " > now() - %2$lld * interval '1 ms')";
    char text[1400], unused[16], end[40];
    day_texts(p->day + 1, unused, end);
    /* cppcheck takes the numbered conversions in the order in which they stand */
    // cppcheck-suppress [invalidPrintfArgType_s, invalidPrintfArgType_sint]
    snprintf(text, sizeof text, look, p->name, (long long)r->delivered_ms, (long long)r->failed_ms,
             (long long)r->cancelled_ms, end);
    PGresult *result = pg_exec_result(c, text);
    int rc = PQresultStatus(result) == PGRES_TUPLES_OK ? strcmp(PQgetvalue(result, 0, 0), "t") == 0
                                                       : pg_fail(c, result, e);
    PQclear(result);
    return rc;
}

static int detach_partition(struct pg *c, const struct partition *p, struct err *e)
{
    char text[160];
    if (p->attachment == LOOSE)
        return 0;
    snprintf(text, sizeof text, "alter table postdate.message detach partition postdate.%s %s", p->name,
             p->attachment == DETACH_PENDING ? "finalize" : "concurrently");
    return pg_exec(c, text, e);
}

static int attach_again(struct pg *c, const struct partition *p, struct err *e)
{
    char from[MESSAGE_ID_TEXT_SIZE], to[MESSAGE_ID_TEXT_SIZE], text[256];
    message_id_format(message_id_floor(p->day * DAY_MS), from);
    message_id_format(message_id_floor((p->day + 1) * DAY_MS), to);
    snprintf(text, sizeof text,
             "alter table postdate.message attach partition postdate.%s for values from ('%s') to ('%s')",
             p->name, from, to);
    return pg_exec(c, text, e);
}

static const struct partition *list_find(const struct partition_list *list, const char *name)
{
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->items[i].name, name) == 0)
            return &list->items[i];
    return NULL;
}

/* As it is now that nobody else makes or drops partitions. A row may have come to life between the look and
 * the detach; nobody can reach the table any more, so this look is final. */
static int drop_loose(struct pg *c, const char *name, const struct retention *r, struct err *e)
{
    struct partition_list list = {0};
    char text[128];
    int dropped = 0, rc = list_load(c, &list, e);
    const struct partition *p = rc == 0 ? list_find(&list, name) : NULL;
    if (p && p->attachment == LOOSE) {
        int needed = holds_needed_rows(c, p, r, e);
        dropped = needed == 0;
        snprintf(text, sizeof text, "select postdate.recur_keep('%1$s'); drop table postdate.%1$s", name);
        rc = needed < 0 ? -1 : needed ? attach_again(c, p, e) : pg_exec(c, text, e);
    }
    free(list.items);
    return rc == 0 ? dropped : -1;
}

/* Is another session at the same partition? */
static bool has_changed(struct pg *c, const struct partition *p)
{
    struct partition_list list = {0};
    struct err ignored;
    if (pg_is_broken(c) || list_load(c, &list, &ignored) != 0)
        return false;
    const struct partition *now = list_find(&list, p->name);
    bool changed = !now || now->attachment != p->attachment;
    free(list.items);
    return changed;
}

/* 1: dropped; 0: must stay; -1: error, also when others' open transactions are in the way (tried again next
 * time). A detach cannot be in a transaction, so two sessions may try it: one of them fails. */
static int drop_if_settled(struct pg *c, const struct partition *p, const struct retention *r, struct err *e)
{
    int needed = p->attachment == ATTACHED ? holds_needed_rows(c, p, r, e) : 0;
    if (needed != 0)
        return needed < 0 ? -1 : 0;
    if (detach_partition(c, p, e) != 0) {
        if (!has_changed(c, p))
            return -1;
        err_clear(e);
        return 0;
    }
    if (begin_alone(c, "2s", e) != 0)
        return -1;
    int dropped = drop_loose(c, p->name, r, e);
    return end_alone(c, dropped < 0 ? -1 : 0, e) == 0 ? dropped : -1;
}

int partitions_drop_settled(struct pg *c, const struct retention *r, int *dropped, struct err *e)
{
    int64_t now, least_ms = r->delivered_ms;
    least_ms = r->cancelled_ms < least_ms ? r->cancelled_ms : least_ms;
    least_ms = r->failed_ms < least_ms ? r->failed_ms : least_ms;
    struct partition_list list = {0};
    struct err first = {0};
    *dropped = 0;
    if (read_today(c, &now, e) != 0 || list_load(c, &list, e) != 0)
        return -1;
    int rc = pg_exec(c, "set statement_timeout = '60s'", e);
    for (int i = 0; i < list.count && rc == 0; i++) {
        struct partition *p = &list.items[i];
        bool past = p->day < now - 1 && (p->day + 1) * DAY_MS + least_ms < now * DAY_MS + DAY_MS;
        if (!past && p->attachment == ATTACHED)
            continue;
        int done = drop_if_settled(c, p, r, e);
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

int partitions_filled(struct pg *c, int64_t from_ms, int64_t to_ms, int max, int64_t **out_ms, struct err *e)
{
    struct pg_params p = {0};
    char first[PARTITION_NAME_SIZE], end[PARTITION_NAME_SIZE] = AFTER_ALL;
    partition_name(from_ms > TIMESTAMP_MIN_MS ? from_ms : TIMESTAMP_MIN_MS, first);
    if (to_ms <= TIMESTAMP_MAX_MS - DAY_MS)
        partition_name(to_ms > TIMESTAMP_MIN_MS ? to_ms + DAY_MS - 1 : TIMESTAMP_MIN_MS, end);
    pg_add_str(&p, first);
    pg_add_str(&p, end);
    pg_add_int4(&p, max);
    PGresult *r = pg_query(c, sql_query_partition_filled, &p, e);
    if (!r)
        return -1;
    int n = PQntuples(r);
    *out_ms = calloc((size_t)n + 1, sizeof **out_ms);
    for (int i = 0; *out_ms && i < n; i++)
        (*out_ms)[i] = pg_time_ms(r, i, 0);
    PQclear(r);
    return *out_ms ? n : err_set(e, ERR_BUG, "out of memory");
}

int partitions_all_filled(struct pg *c, int64_t **out_ms, struct err *e)
{
    return partitions_filled(c, TIMESTAMP_MIN_MS, INT64_MAX, INT32_MAX, out_ms, e);
}
