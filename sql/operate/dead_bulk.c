/* Requeueing and dropping many: a page of dead letters, then one transaction for them. */
#include "core/base/duration.h"
#include "sql/operate/dead_internal.h"
#include "sql/operate/operate_internal.h"
#include "sql_embedded.h"

#include <string.h>

#define CHUNK 200
#define COUNT_CHUNK 5000 /* of a dry run */

struct bulk {
    struct pg *c;
    const struct dead_bulk *what;
    const struct operate_scope *scope;
    struct dead_position at;
    struct buf ids, queues; /* of the page */
    uint8_t name[255];      /* what at.queue points to */
    int64_t before_us, first_us, horizon_ms;
    struct operate_count *count;
    struct operate_dry dry;
    bool stopped;
};

static int begin(struct bulk *b, struct err *e)
{
    PGresult *r = pg_query(b->c, sql_query_dead_begin, NULL, e);
    if (!r)
        return -1;
    b->first_us = pg_int8(r, 0, 0);
    b->horizon_ms = pg_int8(r, 0, 1);
    b->before_us = b->what->since_us ? b->what->since_us : b->first_us;
    PQclear(r);
    return 0;
}

static int take_page(struct bulk *b, const PGresult *r, struct err *e)
{
    int n = PQntuples(r);
    pg_array_begin(&b->ids, PG_OID_UUID, (size_t)n);
    pg_array_begin(&b->queues, PG_OID_TEXT, (size_t)n);
    for (int i = 0; i < n; i++) {
        pg_array_id(&b->ids, pg_id(r, i, 0));
        pg_array_bytes(&b->queues, pg_bytes(r, i, 1));
    }
    struct bytes last = n > 0 ? pg_bytes(r, n - 1, 1) : (struct bytes){0};
    if (b->ids.failed || b->queues.failed || last.len > sizeof b->name)
        return err_set(e, ERR_BUG, "out of memory for dead letters");
    if (n > 0) {
        memcpy(b->name, last.data, last.len);
        b->at =
            (struct dead_position){pg_time_us(r, n - 1, 6), pg_id(r, n - 1, 0), bytes_of(b->name, last.len)};
    }
    return n;
}

static int apply(struct bulk *b, struct err *e)
{
    struct pg_params p = {0};
    bool back = b->what->kind == DEAD_REQUEUE;
    pg_add(&p, as_bytes(buf_bytes(&b->ids)));
    pg_add(&p, as_bytes(buf_bytes(&b->queues)));
    if (back) {
        pg_add(&p, as_int8(b->first_us + b->count->matched * b->what->interval_us));
        pg_add(&p, as_int8(b->what->interval_us));
    }
    PGresult *r = operate_query(b->c, back ? sql_query_dead_requeue : sql_query_dead_drop, &p, e);
    if (!r)
        return -1;
    b->count->changed += pg_int8(r, 0, 0);
    PQclear(r);
    return 0;
}

/* A page; NULL without an error: the time of a dry run is up. */
static PGresult *query_page(struct bulk *b, const struct dead_page *page, struct err *e)
{
    if (!b->what->dry_run)
        return dead_query_page(b->c, page, e);
    PGresult *r = operate_dry_limit(&b->dry, b->c, e) == 0 ? dead_query_page(b->c, page, e) : NULL;
    if (operate_dry_end(&b->dry, b->c, !r, e) == 0)
        return r;
    PQclear(r);
    b->dry.spent = false;
    return NULL;
}

/* How many there were; -1: error. */
static int do_page(struct bulk *b, bool counts_only, struct err *e)
{
    const struct dead_page page = {.filter = b->what->filter,
                                   .scope = b->scope,
                                   .after = &b->at,
                                   .before_us = b->before_us,
                                   .limit = counts_only ? COUNT_CHUNK : CHUNK};
    PGresult *r = query_page(b, &page, e);
    int n = r ? take_page(b, r, e) : b->dry.spent ? 0 : -1;
    if (n > 0 && b->count->matched == 0)
        b->count->first = pg_id(r, 0, 0);
    PQclear(r);
    if (n > 0 && !counts_only && apply(b, e) != 0)
        return -1;
    b->count->matched += n > 0 ? n : 0;
    b->count->minimum = b->what->dry_run && (b->dry.spent || b->count->matched >= OPERATE_DRY_ROWS);
    return n;
}

static int walk(struct bulk *b, bool counts_only, struct err *e)
{
    int n = 0;
    *b->count = (struct operate_count){0};
    b->at = (struct dead_position){0};
    do {
        n = do_page(b, counts_only, e);
        if (n > 0 && b->what->progress &&
            !b->what->progress(b->what->ctx, b->count->matched, b->count->changed))
            b->stopped = true;
    } while (n == (counts_only ? COUNT_CHUNK : CHUNK) && !b->stopped && !b->count->minimum);
    return n < 0 ? -1 : 0;
}

static int check_spread(const struct bulk *b, struct err *e)
{
    char takes[40], most[40];
    double needs_ms = (double)b->count->matched * (double)b->what->interval_us / 1000;
    if (needs_ms <= (double)b->horizon_ms)
        return 0;
    double shown_ms = needs_ms < 3e15 ? needs_ms : 3e15;
    return err_set(e, ERR_REJECT, "rate: with it the last of %lld would go back in %s (allowed: at most %s)",
                   (long long)b->count->matched,
                   duration_format_human((int64_t)shown_ms, takes, sizeof takes),
                   duration_format_human(b->horizon_ms, most, sizeof most));
}

int dead_bulk(struct pg *c, const struct operate_scope *scope, const struct dead_bulk *what,
              struct operate_count *out, struct err *e)
{
    struct bulk b = {.c = c, .scope = scope, .what = what, .count = out};
    *out = (struct operate_count){0};
    operate_dry_begin(&b.dry);
    buf_init(&b.ids, OPERATE_ARRAY_MAX);
    buf_init(&b.queues, OPERATE_ARRAY_MAX + COUNT_CHUNK * 256);
    int rc = begin(&b, e);
    bool spreads = what->kind == DEAD_REQUEUE && what->interval_us > 0;
    if (rc == 0 && (what->dry_run || spreads))
        rc = walk(&b, true, e);
    if (rc == 0 && spreads && !b.stopped)
        rc = check_spread(&b, e);
    if (rc == 0 && !what->dry_run && !b.stopped)
        rc = walk(&b, false, e);
    buf_free(&b.ids);
    buf_free(&b.queues);
    return rc;
}
