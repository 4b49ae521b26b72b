/* How many messages are in which state. Each state has a budget of its own, so a million delivered ones do
 * not hide that some wait. What is few among many is found by an index; where nearly all of a day is looked
 * for, a sequential scan is several times as fast. */
#include "core/base/timestamp.h"
#include "sql/operate/lookup_internal.h"
#include "sql_embedded.h"

void status_count_begin(struct status_left *left)
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
    struct pg_params p = {{as_bound(day->from_ms), as_bound(day->to_ms)}};
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

/* No index has those, but until now there is little else; ids lead past what is due later. */
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

int status_count_day(struct pg *c, const struct due_range *day, struct status_left *left,
                     struct status_report *s, struct err *e)
{
    const struct {
        bool needed, scans; /* nearly all of the day is what it counts */
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

void status_count_end(const struct status_left *left, struct status_report *s)
{
    for (int i = 0; i < MESSAGE_STATE_COUNT; i++)
        s->capped[i] = left->rows[i] <= 0;
}
