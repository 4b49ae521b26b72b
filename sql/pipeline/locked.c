#include "sql/pipeline/locked.h"

#include "core/base/timestamp.h"
#include "sql/connection/pg_internal.h"
#include "sql_embedded.h"

#include <string.h>

#define HORIZON_MS (2 * DAY_MS) /* nothing that a gateway waits with itself is claimed further ahead */

int locked_days_read(struct pg *c, struct locked_days *out, struct err *e)
{
    memset(out, 0, sizeof *out);
    PGresult *r = pg_query(c, sql_query_locked_partitions, NULL, e);
    if (!r)
        return -1;
    for (int i = 0; i < PQntuples(r) && out->count < LOCKED_DAYS_MAX; i++) {
        if (i == 0)
            pg_text(r, i, 3, out->who, sizeof out->who);
        const struct due_range day = {pg_time_ms(r, i, 0), pg_time_ms(r, i, 1)};
        if (pg_is_null(r, i, 0))
            out->all = true;
        else if (out->count == 0 || out->day[out->count - 1].to_ms < day.to_ms) /* not within the last one */
            out->day[out->count++] = day;
    }
    PQclear(r);
    return 0;
}

bool due_range_has(const struct due_range *r, int64_t due_ms)
{
    return due_ms >= r->from_ms && due_ms < r->to_ms;
}

bool locked_days_has(const struct locked_days *l, int64_t due_ms)
{
    for (int i = 0; i < l->count; i++)
        if (due_range_has(&l->day[i], due_ms))
            return true;
    return l->all;
}

void due_range_add(struct due_range *r, int64_t due_ms)
{
    r->from_ms = due_ms < r->from_ms ? due_ms : r->from_ms;
    r->to_ms = due_ms >= r->to_ms ? due_ms + 1 : r->to_ms;
}

bool locked_days_piece(const struct locked_days *l, struct due_range *left, struct due_range *out)
{
    if (l && l->all)
        return false;
    for (int i = 0; l && i < l->count; i++) /* ascending: the first days may be locked one after the other */
        if (due_range_has(&l->day[i], left->from_ms))
            left->from_ms = l->day[i].to_ms;
    if (left->from_ms >= left->to_ms)
        return false;
    int64_t to_ms = left->to_ms;
    if (to_ms - left->from_ms > LOCKED_SPAN_DAYS * DAY_MS)
        to_ms = left->from_ms + LOCKED_SPAN_DAYS * DAY_MS - left->from_ms % DAY_MS;
    for (int i = 0; l && i < l->count; i++)
        if (l->day[i].from_ms > left->from_ms && l->day[i].from_ms < to_ms)
            to_ms = l->day[i].from_ms;
    *out = (struct due_range){left->from_ms, to_ms};
    left->from_ms = to_ms;
    return true;
}

int locked_days_around(struct pg *c, struct due_range all, locked_days_fn *fn, void *ctx, bool *partly,
                       struct err *e)
{
    struct locked_days locked = {0};
    struct due_range left = all, piece;
    bool asked = false;
    while (locked_days_piece(&locked, &left, &piece)) {
        if (fn(ctx, &piece, e) == 0)
            continue;
        if (!pg_is_locked_out(c))
            return -1;
        if (!asked) {
            if (locked_days_read(c, &locked, e) != 0)
                return -1;
            left.from_ms = piece.from_ms;
        }
        err_clear(e);
        asked = true;
    }
    if (partly)
        *partly = asked;
    return 0;
}

int claimed_row_days(struct pg *c, int64_t *now_ms, struct due_range *out, struct err *e)
{
    int64_t oldest_ms;
    if (pg_ask(c, sql_query_locked_claims_range, NULL, PG_ROW(PG_TIME(*now_ms), PG_TIME(oldest_ms)), e) != 0)
        return -1;
    *out = (struct due_range){oldest_ms < 0 ? *now_ms : oldest_ms, *now_ms + HORIZON_MS};
    return 0;
}
