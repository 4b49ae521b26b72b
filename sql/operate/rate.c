#include "sql/operate/rate.h"

#include "core/base/rate.h"
#include "core/message/message.h"
#include "sql/operate/operate_internal.h"
#include "sql_embedded.h"

#define NAME_SHOWN 120

int rate_set(struct pg *c, const struct rate *rate, struct err *e)
{
    PGresult *r = operate_query(c, sql_query_rate_set,
                                PG_WITH(as_bytes(rate->exchange), as_bytes(rate->routing_key),
                                        as_float8(rate->per_second),
                                        rate->burst != 0 ? as_int4(rate->burst) : as_null()),
                                e);
    PQclear(r);
    return r ? 0 : -1;
}

static int fail_names(struct bytes exchange, struct bytes routing_key, const char *what, struct err *e)
{
    char exchange_text[NAME_SHOWN], key_text[NAME_SHOWN];
    return err_set(e, ERR_NOT_FOUND, "%s the exchange \"%s\" and the routing key \"%s\"", what,
                   bytes_printable(exchange, exchange_text, sizeof exchange_text),
                   bytes_printable(routing_key, key_text, sizeof key_text));
}

int rate_fail_missing(struct bytes exchange, struct bytes routing_key, struct err *e)
{
    return fail_names(exchange, routing_key, "no rate is set for", e);
}

int rate_fail_unmatched(struct bytes exchange, struct bytes routing_key, struct err *e)
{
    return fail_names(exchange, routing_key, "no rate counts for messages with", e);
}

/* The query says whether there is such a rate. */
static int change(struct pg *c, const char *query, struct bytes exchange, struct bytes routing_key,
                  struct err *e)
{
    PGresult *r = operate_query(c, query, PG_WITH(as_bytes(exchange), as_bytes(routing_key)), e);
    bool found = r && pg_bool(r, 0, 0);
    PQclear(r);
    if (!r)
        return -1;
    return found ? 0 : rate_fail_missing(exchange, routing_key, e);
}

int rate_pause(struct pg *c, struct bytes exchange, struct bytes routing_key, struct err *e)
{
    return change(c, sql_query_rate_pause, exchange, routing_key, e);
}

int rate_resume(struct pg *c, struct bytes exchange, struct bytes routing_key, struct err *e)
{
    return change(c, sql_query_rate_resume, exchange, routing_key, e);
}

int rate_remove(struct pg *c, struct bytes exchange, struct bytes routing_key, struct err *e)
{
    return change(c, sql_query_rate_remove, exchange, routing_key, e);
}

/* Those with these names, all where they are null; or the one that counts for messages with them. How many.
 */
static int read_rates(struct pg *c, struct pg_params *p, struct arena *a, struct rate **out, struct err *e)
{
    struct rate x = {0};
    const struct pg_rows rows = {PG_ROW(PG_TO(x.exchange), PG_TO(x.routing_key), PG_TO(x.per_second),
                                        PG_TO(x.burst), PG_TO(x.paused), PG_TO(x.waiting),
                                        PG_TIME(x.drained_ms), PG_TIME(x.changed_ms), PG_TO(x.changed_by)),
                                 &x, sizeof x, a};
    return pg_take_all(pg_query(c, sql_query_rate_read, p, e), &rows, out, e);
}

int rate_list(struct pg *c, struct arena *a, struct rate **out, size_t *out_count, struct err *e)
{
    int n = read_rates(c, PG_WITH(as_null(), as_null(), as_bool(false)), a, out, e);
    *out_count = n < 0 ? 0 : (size_t)n;
    return n < 0 ? -1 : 0;
}

int rate_get(struct pg *c, struct bytes exchange, struct bytes routing_key, struct arena *a, struct rate *out,
             struct err *e)
{
    struct rate *found;
    int n = read_rates(c, PG_WITH(as_bytes(exchange), as_bytes(routing_key), as_bool(false)), a, &found, e);
    if (n > 0)
        *out = *found;
    return n == 0 ? rate_fail_missing(exchange, routing_key, e) : n > 0 ? 0 : -1;
}

int rate_match(struct pg *c, struct bytes exchange, struct bytes routing_key, struct arena *a,
               struct rate *out, struct err *e)
{
    struct rate *found;
    int n = read_rates(c, PG_WITH(as_bytes(exchange), as_bytes(routing_key), as_bool(true)), a, &found, e);
    if (n > 0)
        *out = *found;
    return n == 0 ? rate_fail_unmatched(exchange, routing_key, e) : n > 0 ? 0 : -1;
}
