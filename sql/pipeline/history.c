#include "sql/pipeline/history.h"

#include "sql/connection/pg_internal.h"
#include "sql_embedded.h"

int history_note(struct pg *c, const struct history_point *known, int64_t window_ms,
                 struct history_report *out, struct err *e)
{
    bool any = known->lineage[0] != '\0';
    *out = (struct history_report){0};
    return pg_ask(c, sql_query_history_note,
                  PG_WITH(as_str(any ? known->lineage : NULL), any ? as_int8(known->number) : as_null(),
                          any ? as_time(known->at_ms) : as_null(),
                          any ? as_time(known->held_until_ms) : as_null(), as_int8(window_ms)),
                  PG_ROW(PG_TO(out->point.lineage), PG_TO(out->point.number), PG_TIME(out->point.at_ms),
                         PG_TIME(out->point.held_until_ms), PG_TO(out->lost_number), PG_TIME(out->found_ms),
                         PG_TIME(out->from_ms), PG_TIME(out->to_ms), PG_TIME(out->look_until_ms),
                         PG_TIME(out->now_ms)),
                  e);
}
