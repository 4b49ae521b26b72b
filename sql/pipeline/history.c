/* The database's own history, and records that it may have lost.
 *
 * Outcomes are recorded again except in locked days, which are treated as lost. */
#include "sql/pipeline/history.h"

#include "sql/connection/pg_internal.h"
#include "sql/pipeline/locked.h"
#include "sql/pipeline/settle_internal.h"
#include "sql_embedded.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

const char *history_due_text(int64_t due, char out[HISTORY_DUE_SIZE])
{
    if (due < 0)
        snprintf(out, HISTORY_DUE_SIZE, "how many messages were due then could not be counted");
    else
        snprintf(out, HISTORY_DUE_SIZE, "%s%" PRId64 " messages were due then",
                 due >= HISTORY_DUE_MAX ? "at least " : "", due);
    return out;
}

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
                         PG_TIME(out->now_ms), PG_TO(out->due)),
                  e);
}

struct saying {
    struct pg *c;
    const struct message_id *ids;
    size_t count;
    struct message_id *some; /* room for as many */
    int64_t forgotten;
};

static int say_piece(void *ctx, const struct due_range *piece, struct err *e)
{
    struct saying *s = ctx;
    size_t n = 0;
    for (size_t i = 0; i < s->count; i++)
        if (due_range_has(piece, message_id_due_ms(s->ids[i])))
            s->some[n++] = s->ids[i];
    if (n == 0)
        return 0;
    int64_t forgotten = pg_number(s->c, sql_query_history_delivered, PG_WITH(as_ids(s->some, n)), e);
    s->forgotten += forgotten > 0 ? forgotten : 0;
    return forgotten < 0 ? -1 : 0;
}

int64_t history_say_delivered(struct pg *c, const struct message_id *ids, size_t count, struct err *e)
{
    struct due_range days = {INT64_MAX, INT64_MIN};
    struct saying s = {.c = c, .ids = ids, .count = count, .some = calloc(count ? count : 1, sizeof *ids)};
    if (!s.some)
        return err_set(e, ERR_BUG, "out of memory while recording deliveries again");
    for (size_t i = 0; i < count; i++)
        due_range_add(&days, message_id_due_ms(ids[i]));
    int rc = count > 0 ? locked_days_around(c, days, say_piece, &s, NULL, e) : 0;
    free(s.some);
    return rc != 0 ? -1 : s.forgotten;
}

int history_find_known(struct pg *c, const struct message_id *ids, size_t count, bool *known, struct err *e)
{
    PG_PARAMS(p) = {0};
    id_set_fill(&p, ids, count);
    PGresult *r = pg_query(c, sql_query_history_known, &p, e);
    for (size_t i = 0; r && i < count; i++)
        known[i] = is_among(r, ids[i]);
    PQclear(r);
    return r ? 0 : -1;
}

int64_t history_store(struct pg *c, const struct message *const *messages, size_t count, int64_t grace_ms,
                      struct err *e)
{
    PG_PARAMS(p) = {0};
    struct buf *ids = pg_add_array(&p, PG_OID_UUID, count), *exchanges = pg_add_array(&p, PG_OID_TEXT, count),
               *keys = pg_add_array(&p, PG_OID_TEXT, count),
               *properties = pg_add_array(&p, PG_OID_BYTEA, count),
               *bodies = pg_add_array(&p, PG_OID_BYTEA, count);
    for (size_t i = 0; i < count; i++) {
        pg_array_id(ids, messages[i]->id);
        pg_array_bytes(exchanges, messages[i]->exchange);
        pg_array_bytes(keys, messages[i]->routing_key);
        pg_array_bytes(properties, messages[i]->properties);
        pg_array_bytes(bodies, messages[i]->body);
    }
    pg_add(&p, as_int8(grace_ms));
    return pg_number(c, sql_query_history_store, &p, e);
}
