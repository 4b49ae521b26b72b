#include "sql/operate/rate.h"

#include "core/base/rate.h"
#include "core/message/message.h"
#include "sql/operate/operate_internal.h"
#include "sql_embedded.h"

#define NAME_SHOWN 120

/* What postdate.rate_set would refuse, in more words than its error has here. */
static int check(const struct rate *r, struct err *e)
{
    if (r->per_second != 0 && !(r->per_second >= RATE_MIN && r->per_second <= RATE_MAX))
        return err_set(e, ERR_REJECT,
                       "rate: %g a second is out of range (allowed: 0, which pauses, and 0.0001 to 1000000)",
                       r->per_second);
    if (r->burst != 0 && (r->burst < 1 || r->burst > RATE_BURST_MAX))
        return err_set(e, ERR_REJECT, "burst: %d is out of range (allowed: 1 to %d)", r->burst,
                       RATE_BURST_MAX);
    if (r->exchange.len > MESSAGE_NAME_MAX || r->routing_key.len > MESSAGE_NAME_MAX)
        return err_set(e, ERR_REJECT,
                       "the name of an exchange or a routing key is too long (allowed: %d bytes)",
                       MESSAGE_NAME_MAX);
    return 0;
}

int rate_set(struct pg *c, const struct rate *rate, struct err *e)
{
    if (check(rate, e) != 0)
        return -1;
    PGresult *r = operate_query(c, sql_query_rate_set,
                                PG_WITH(as_bytes(rate->exchange), as_bytes(rate->routing_key),
                                        as_float8(rate->per_second),
                                        rate->burst != 0 ? as_int4(rate->burst) : as_null()),
                                e);
    PQclear(r);
    if (!r && e->kind == ERR_REJECT) /* nothing else is left */
        err_set(e, ERR_REJECT,
                "there are %d rates already: set one for several exchanges, with *, or remove some",
                RATES_MOST);
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
    char exchange_text[NAME_SHOWN], key_text[NAME_SHOWN];
    int rc = change(c, sql_query_rate_resume, exchange, routing_key, e);
    if (rc != 0 && e->kind == ERR_REJECT)
        err_set(e, ERR_REJECT,
                "the rate of the exchange \"%s\" and the routing key \"%s\" is 0, which pauses: set another "
                "rate, or remove it",
                bytes_printable(exchange, exchange_text, sizeof exchange_text),
                bytes_printable(routing_key, key_text, sizeof key_text));
    return rc;
}

int rate_remove(struct pg *c, struct bytes exchange, struct bytes routing_key, struct err *e)
{
    return change(c, sql_query_rate_remove, exchange, routing_key, e);
}

/* Columns as in sql/query/rate_read.sql. False: there is no memory. */
static bool read_rate(const PGresult *r, int row, struct arena *a, struct rate *out)
{
    *out = (struct rate){
        .per_second = pg_float8(r, row, 2),
        .burst = pg_int4(r, row, 3),
        .paused = pg_bool(r, row, 4),
        .waiting = pg_int8(r, row, 5),
        .drained_ms = pg_time_ms(r, row, 6),
        .changed_ms = pg_time_ms(r, row, 7),
    };
    return pg_copy(r, row, 0, a, &out->exchange) && pg_copy(r, row, 1, a, &out->routing_key) &&
           pg_copy(r, row, 8, a, &out->changed_by);
}

static int fail_memory(struct err *e)
{
    return err_set(e, ERR_BUG, "out of memory for rates");
}

int rate_list(struct pg *c, struct arena *a, struct rate **out, size_t *out_count, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_rate_read, PG_WITH(as_null(), as_null()), e);
    if (!r)
        return -1;
    size_t n = (size_t)PQntuples(r);
    bool fine = (*out = arena_alloc(a, (n + 1) * sizeof **out)) != NULL;
    for (size_t i = 0; i < n && fine; i++)
        fine = read_rate(r, (int)i, a, &(*out)[i]);
    PQclear(r);
    *out_count = n;
    return fine ? 0 : fail_memory(e);
}

/* 1: it is in out; 0: there is none. */
static int read_one(struct pg *c, const char *query, struct pg_params *p, struct arena *a, struct rate *out,
                    struct err *e)
{
    PGresult *r = pg_query(c, query, p, e);
    if (!r)
        return -1;
    int found = PQntuples(r) > 0;
    if (found && !read_rate(r, 0, a, out))
        found = fail_memory(e);
    PQclear(r);
    return found;
}

int rate_get(struct pg *c, struct bytes exchange, struct bytes routing_key, struct arena *a, struct rate *out,
             struct err *e)
{
    int found =
        read_one(c, sql_query_rate_read, PG_WITH(as_bytes(exchange), as_bytes(routing_key)), a, out, e);
    return found == 0 ? rate_fail_missing(exchange, routing_key, e) : found > 0 ? 0 : -1;
}

int rate_match(struct pg *c, struct bytes exchange, struct bytes routing_key, struct arena *a,
               struct rate *out, struct err *e)
{
    int found =
        read_one(c, sql_query_rate_match, PG_WITH(as_bytes(exchange), as_bytes(routing_key)), a, out, e);
    return found == 0 ? rate_fail_unmatched(exchange, routing_key, e) : found > 0 ? 0 : -1;
}
