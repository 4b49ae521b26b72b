/* Counts messages by state. Each state has its own limit, so that a million delivered messages do not hide
 * waiting ones. States with few rows are counted by an index; if nearly all rows of a day match, a sequential
 * scan is several times as fast. */
#include "core/base/duration.h"
#include "core/base/timestamp.h"
#include "sql/admin/partition.h"
#include "sql/operate/lookup_internal.h"
#include "sql/pipeline/instance.h"
#include "sql_embedded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bounded counts: none reads more than STATUS_COUNT_MAX rows per state. */
#define STATUS_COUNT_MAX 1000000
/* Of messages that were due within the last STATUS_LATENESS_MS and are delivered, STATUS_LATENESS_ROWS at
 * most: how long after their due time that was on record. By way of the table, so a little more than
 * consumers see. */
#define STATUS_LATENESS_MS 60000
#define STATUS_LATENESS_ROWS 10000
#define STATUS_LATE_MS INT64_C(10000) /* what is overdue for less is on its way */

/* sql/operate/status.c: how many rows of each state may still be counted. */
struct status_left {
    int64_t rows[MESSAGE_STATE_COUNT];
};

static void status_count_begin(struct status_left *left)
{
    for (int i = 0; i < MESSAGE_STATE_COUNT; i++)
        left->rows[i] = STATUS_COUNT_MAX;
}

static void take(struct status_report *s, struct status_left *left, enum message_state state, int64_t n)
{
    s->count[state] += n;
    left->rows[state] -= n;
}

static int count_by_index(struct pg *c, const struct due_range *day, struct status_left *left,
                          struct status_report *s, struct err *e)
{
    static const enum message_state states[] = {MESSAGE_HANDED,     MESSAGE_CLAIMED, MESSAGE_CANCELLED,
                                                MESSAGE_SUPERSEDED, MESSAGE_FAILED,  MESSAGE_EXPIRED};
    enum { STATES = sizeof states / sizeof states[0] };
    PG_PARAMS(p) = {{as_bound(day->from_ms), as_bound(day->to_ms)}};
    for (int i = 0; i < STATES; i++)
        pg_add(&p, as_int8(left->rows[states[i]]));
    pg_add(&p, as_int8(STATUS_COUNT_MAX - s->retrying));
    PGresult *r = pg_query(c, sql_query_status_count, &p, e);
    if (!r)
        return -1;
    for (int i = 0; i < STATES; i++)
        take(s, left, states[i], pg_int8(r, 0, i));
    s->retrying += pg_int8(r, 0, STATES);
    PQclear(r);
    return 0;
}

/* In doubt are those that came first, so they are found before the budget is spent. */
static int count_scheduled(struct pg *c, const struct due_range *day, struct status_left *left,
                           struct status_report *s, struct err *e)
{
    int64_t scheduled = 0, doubted = 0;
    int rc =
        pg_ask(c, sql_query_status_scheduled,
               PG_WITH(as_bound(day->from_ms), as_bound(day->to_ms), as_int8(left->rows[MESSAGE_SCHEDULED])),
               PG_ROW(PG_TO(scheduled), PG_TO(doubted)), e);
    take(s, left, MESSAGE_SCHEDULED, scheduled);
    s->count[MESSAGE_CLAIMED] += doubted;
    return rc;
}

/* No index has those, but few other rows are due until now; ids skip rows that are due later. */
static int count_delivered(struct pg *c, const struct due_range *day, struct status_left *left,
                           struct status_report *s, struct err *e)
{
    const struct message_id end = message_id_least(day->to_ms < s->now_ms ? day->to_ms : s->now_ms);
    int64_t n = pg_number(c, sql_query_status_delivered,
                          PG_WITH(as_bound(day->from_ms), as_bound(day->to_ms),
                                  as_int8(left->rows[MESSAGE_DELIVERED]), as_id(end)),
                          e);
    if (n < 0)
        return -1;
    take(s, left, MESSAGE_DELIVERED, n);
    return 0;
}

static int status_count_day(struct pg *c, const struct due_range *day, struct status_left *left,
                            struct status_report *s, struct err *e)
{
    const struct {
        bool needed, scans; /* nearly all rows of the day are counted */
        int (*count)(struct pg *c, const struct due_range *day, struct status_left *left,
                     struct status_report *s, struct err *e);
    } steps[] = {
        {true, false, count_by_index},
        {left->rows[MESSAGE_SCHEDULED] > 0, day->from_ms > s->now_ms, count_scheduled},
        {left->rows[MESSAGE_DELIVERED] > 0 && day->from_ms < s->now_ms, day->to_ms <= s->now_ms,
         count_delivered},
    };
    int rc = 0;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && rc == 0; i++) {
        if (!steps[i].needed)
            continue;
        if (!steps[i].scans)
            rc = pg_begin_by_index(c, e);
        if (rc == 0)
            rc = steps[i].count(c, day, left, s, e);
        if (!steps[i].scans)
            rc = pg_finish(c, rc, e);
    }
    return rc;
}

static void status_count_end(const struct status_left *left, struct status_report *s)
{
    for (int i = 0; i < MESSAGE_STATE_COUNT; i++)
        s->capped[i] = left->rows[i] <= 0;
}

static int read_meta(struct pg *c, struct status_report *s, struct err *e)
{
    return pg_ask(c, sql_query_status_meta, NULL,
                  PG_ROW(PG_TO(s->schema_version), PG_TO(s->broker), PG_TO(s->vhost), PG_TIME(s->now_ms),
                         PG_TO(s->prefix), PG_TIME(s->back.found_ms), PG_TIME(s->back.from_ms),
                         PG_TIME(s->back.to_ms), PG_TIME(s->back.look_until_ms), PG_TO(s->back.due)),
                  e);
}

/* On a host; NULL: on all. */
static int read_instances(struct pg *c, const char *host, struct status_report *s, struct err *e)
{
    PGresult *r =
        pg_query(c, sql_query_status_instances, PG_WITH(as_int8(INSTANCE_LEASE_MS), as_str(host)), e);
    if (!r)
        return -1;
    for (int i = 0; i < PQntuples(r) && i < STATUS_INSTANCES_MAX; i++) {
        struct status_instance *in = &s->instances[s->instance_count++];
        pg_read(r, i,
                PG_ROW(PG_TO(in->id), PG_TO(in->name), PG_TIME(in->started_ms), PG_TIME(in->heartbeat_ms),
                       PG_TO(in->alive), PG_TO(in->transport), PG_TO(in->broker_away), PG_TO(in->version),
                       PG_TO(s->alive)),
                NULL);
    }
    PQclear(r);
    return 0;
}

static int read_held(struct pg *c, struct status_held *h, struct err *e)
{
    return pg_ask(c, sql_query_status_held, NULL,
                  PG_ROW(PG_TO(h->paused), PG_TO(h->first_paused), PG_TO(h->behind), PG_TO(h->first_behind),
                         PG_TO(h->left_out), PG_TO(h->rates), PG_TO(h->first_rate), PG_TO(h->waiting)),
                  e);
}

int status_find(struct pg *c, const char *who, const struct status_report *s, health_each *each, void *ctx,
                struct err *e)
{
    const struct status_held *h = &s->held;
    int64_t late_ms = s->overdue > 0 && s->oldest_overdue_ms >= 0 ? s->now_ms - s->oldest_overdue_ms : 0;
    char span[40] = "";
    if (late_ms >= STATUS_LATE_MS)
        duration_format_human(late_ms, span, sizeof span);
    return health_find(c, sql_query_status_findings,
                       PG_WITH(as_str(who), as_int8(INSTANCE_LEASE_MS), as_int8(s->overdue), as_str(span),
                               as_int8(s->count[MESSAGE_FAILED]), as_int8(s->retrying),
                               as_bool(s->locked.count > 0 || s->locked.all), as_bool(s->disk_full),
                               as_int8(h->behind), as_int8(h->left_out), as_str(h->first_behind),
                               as_int8(h->paused), as_str(h->first_paused), as_int8(h->rates),
                               as_int8(h->waiting), as_str(h->first_rate)),
                       each, ctx, e);
}

int lookup_alive(struct pg *c, const char *host, struct err *e)
{
    struct status_report s = {0};
    return read_instances(c, host, &s, e) != 0 ? -1 : (int)s.alive;
}

static int waiting_day(struct pg *c, const struct due_range *day, struct status_report *s, struct err *e)
{
    int64_t next = -1, overdue = 0, oldest = -1;
    int rc = pg_begin_by_index(c, e);
    if (rc == 0)
        rc = pg_ask(c, sql_query_status_waiting,
                    PG_WITH(as_bound(day->from_ms), as_bound(day->to_ms),
                            as_int8(STATUS_COUNT_MAX - s->overdue), as_int8(INSTANCE_LEASE_MS)),
                    PG_ROW(PG_TIME(next), PG_TO(overdue), PG_TIME(oldest)), e);
    if (pg_finish(c, rc, e) != 0)
        return -1;
    if (next >= 0 && (s->next_due_ms < 0 || next < s->next_due_ms))
        s->next_due_ms = next;
    s->overdue += overdue;
    if (oldest >= 0 && (s->oldest_overdue_ms < 0 || oldest < s->oldest_overdue_ms))
        s->oldest_overdue_ms = oldest;
    return 0;
}

/* Reads the day that began last only: for the minute after midnight (UTC) that is less than a minute. */
static int read_lateness(struct pg *c, struct status_report *s, struct err *e)
{
    int64_t today_ms = s->now_ms - s->now_ms % DAY_MS, from_ms = s->now_ms - STATUS_LATENESS_MS;
    struct status_lateness *l = &s->lateness;
    int rc = pg_begin_by_index(c, e);
    if (rc == 0)
        rc = pg_ask(c, sql_query_status_lateness,
                    PG_WITH(as_bound(from_ms > today_ms ? from_ms : today_ms), as_bound(s->now_ms),
                            as_int8(STATUS_LATENESS_ROWS)),
                    PG_ROW(PG_TO(l->count), PG_TO(l->p50_ms), PG_TO(l->p90_ms), PG_TO(l->p99_ms)), e);
    return pg_finish(c, rc, e);
}

/* Reads one day, or none if it is locked, also meanwhile. left is NULL: only the messages that have waited
 * longest. */
static int look_at_day(struct pg *c, const struct due_range *day, struct status_left *left,
                       struct status_report *s, struct err *e)
{
    if (locked_days_has(&s->locked, day->from_ms))
        return 0;
    int rc = left ? status_count_day(c, day, left, s, e) : waiting_day(c, day, s, e);
    if (rc == 0 || !pg_is_locked_out(c) || locked_days_read(c, &s->locked, e) != 0)
        return rc;
    err_clear(e);
    return 0;
}

int lookup_status(struct pg *c, struct status_report *s, struct err *e)
{
    memset(s, 0, sizeof *s);
    s->next_due_ms = s->oldest_overdue_ms = -1;
    struct due_range *days = NULL;
    struct status_left left;
    status_count_begin(&left);
    if (read_meta(c, s, e) != 0 || read_instances(c, NULL, s, e) != 0 ||
        locked_days_read(c, &s->locked, e) != 0 || read_held(c, &s->held, e) != 0)
        return -1;
    int n = partitions_all_filled(c, &days, e), rc = n < 0 ? -1 : 0;
    for (int i = 0; i < n && rc == 0; i++)
        rc = look_at_day(c, &days[i], &left, s, e);
    status_count_end(&left, s);
    /* next_at is never before due: once something waits before a day begins, no later day has anything
     * sooner. */
    for (int i = 0; i < n && rc == 0; i++)
        if (s->next_due_ms < 0 || s->next_due_ms >= days[i].from_ms)
            rc = look_at_day(c, &days[i], NULL, s, e);
    free(days);
    return rc != 0 || locked_days_has(&s->locked, s->now_ms) ? rc : read_lateness(c, s, e);
}
