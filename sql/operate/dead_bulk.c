/* Requeueing and dropping many, in chunks. */
#include "core/base/duration.h"
#include "sql/operate/dead_internal.h"
#include "sql/operate/operate_internal.h"
#include "sql_embedded.h"

struct bulk {
    struct operate_chunks chunks;
    const struct dead_bulk *what;
    const struct operate_scope *scope;
    int64_t before_us, first_us, horizon_ms;
};

static int begin(struct bulk *b, struct err *e)
{
    int rc =
        pg_ask(b->chunks.c, sql_query_dead_begin, NULL, PG_ROW(PG_TO(b->first_us), PG_TO(b->horizon_ms)), e);
    b->before_us = b->what->since_us ? b->what->since_us : b->first_us;
    return rc;
}

static int walk(struct bulk *b, bool counts_only, struct err *e)
{
    struct operate_chunks *w = &b->chunks;
    struct dead_position at = {0};
    char queue[256] = ""; /* what `at` points to */
    int rc = 1;
    w->counts = counts_only;
    operate_chunks_begin(w);
    while (rc > 0) {
        const struct dead_page page = {.filter = b->what->filter,
                                       .scope = b->scope,
                                       .after = &at,
                                       .before_us = b->before_us,
                                       .limit = operate_chunk_rows(w)};
        struct pg_params p;
        dead_params(&p, &page);
        pg_add(&p, as_str(counts_only ? NULL : b->what->kind == DEAD_REQUEUE ? "requeue" : "drop"));
        pg_add(&p, as_int8(b->first_us + w->count->matched * b->what->interval_us));
        pg_add(&p, as_int8(b->what->interval_us));
        rc = operate_chunk(w, sql_query_dead_bulk, &p,
                           PG_ROW(PG_TO(w->n), PG_TO(w->changed), PG_TO(w->first), PG_TO(at.died_us),
                                  PG_TO(at.id), PG_TO(queue)),
                           e);
        at.queue = bytes_of_str(queue);
    }
    return rc;
}

static int check_spread(const struct bulk *b, struct err *e)
{
    char takes[40], most[40];
    double needs_ms = (double)b->chunks.count->matched * (double)b->what->interval_us / 1000;
    if (needs_ms <= (double)b->horizon_ms)
        return 0;
    double shown_ms = needs_ms < 3e15 ? needs_ms : 3e15;
    return err_set(e, ERR_REJECT, "rate: with it the last of %lld would go back in %s (allowed: at most %s)",
                   (long long)b->chunks.count->matched,
                   duration_format_human((int64_t)shown_ms, takes, sizeof takes),
                   duration_format_human(b->horizon_ms, most, sizeof most));
}

int dead_bulk(struct pg *c, const struct operate_scope *scope, const struct dead_bulk *what,
              struct operate_count *out, struct err *e)
{
    struct bulk b = {.chunks = {.c = c,
                                .count = out,
                                .progress = what->progress,
                                .ctx = what->ctx,
                                .dry_run = what->dry_run},
                     .what = what,
                     .scope = scope};
    *out = (struct operate_count){0};
    int rc = begin(&b, e);
    bool spreads = what->kind == DEAD_REQUEUE && what->interval_us > 0;
    if (rc == 0 && (what->dry_run || spreads))
        rc = walk(&b, true, e);
    if (rc == 0 && spreads && !b.chunks.stopped)
        rc = check_spread(&b, e);
    if (rc == 0 && !what->dry_run && !b.chunks.stopped)
        rc = walk(&b, false, e);
    return rc;
}
