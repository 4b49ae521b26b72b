/* What sql/ would do with rates. */
#include "tests/fuzz/database.h"

#include "core/base/rate.h"
#include "sql/operate/rate.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void check_names(struct bytes exchange, struct bytes routing_key)
{
    FUZZ_HOLDS(bytes_is_text(exchange));
    FUZZ_HOLDS(bytes_is_text(routing_key) && routing_key.len <= 255 && routing_key.data);
}

static struct rate make_rate(void)
{
    uint8_t kind = database_byte();
    return (struct rate){.exchange = bytes_of_str(kind & 1 ? "" : "orders.*"),
                         .routing_key = bytes_of_str(kind & 2 ? "k" : "*"),
                         .per_second = kind & 4 ? 0 : 1.5,
                         .burst = 1,
                         .paused = (kind & 12) != 0,
                         .waiting = kind,
                         .drained_ms = kind & 16 ? FUZZ_NOW_MS : -1,
                         .changed_ms = FUZZ_NOW_MS,
                         .changed_by = bytes_of_str("postdate")};
}

int rate_set(struct pg *c, const struct rate *r, struct err *e)
{
    (void)c;
    check_names(r->exchange, r->routing_key);
    FUZZ_HOLDS(r->per_second == 0 || (r->per_second >= RATE_MIN && r->per_second <= RATE_MAX));
    FUZZ_HOLDS(r->burst >= 0 && r->burst <= 1000000);
    return database_outcome(false, e);
}

static int change(struct bytes exchange, struct bytes routing_key, struct err *e)
{
    check_names(exchange, routing_key);
    return database_outcome(true, e);
}

int rate_pause(struct pg *c, struct bytes exchange, struct bytes routing_key, struct err *e)
{
    (void)c;
    return change(exchange, routing_key, e);
}

int rate_resume(struct pg *c, struct bytes exchange, struct bytes routing_key, struct err *e)
{
    (void)c;
    return change(exchange, routing_key, e);
}

int rate_remove(struct pg *c, struct bytes exchange, struct bytes routing_key, struct err *e)
{
    (void)c;
    return change(exchange, routing_key, e);
}

int rate_get(struct pg *c, struct bytes exchange, struct bytes routing_key, struct arena *a, struct rate *out,
             struct err *e)
{
    (void)c, (void)a;
    *out = make_rate();
    return change(exchange, routing_key, e);
}

int rate_match(struct pg *c, struct bytes exchange, struct bytes routing_key, struct arena *a,
               struct rate *out, struct err *e)
{
    return rate_get(c, exchange, routing_key, a, out, e);
}

int rate_list(struct pg *c, struct arena *a, struct rate **out, size_t *out_count, struct err *e)
{
    (void)c;
    *out_count = database_byte() % 3;
    *out = arena_alloc(a, 3 * sizeof **out);
    if (!*out)
        return err_set(e, ERR_BUG, "out of memory");
    for (size_t i = 0; i < *out_count; i++)
        (*out)[i] = make_rate();
    return database_outcome(false, e);
}

int rate_fail_missing(struct bytes exchange, struct bytes routing_key, struct err *e)
{
    check_names(exchange, routing_key);
    return err_set(e, ERR_NOT_FOUND, "no rate is set");
}

int rate_fail_unmatched(struct bytes exchange, struct bytes routing_key, struct err *e)
{
    return rate_fail_missing(exchange, routing_key, e);
}
