/* Bulk operations walk the partitions like a listing, in chunks. */
#include "core/base/clock.h"
#include "core/base/timestamp.h"
#include "sql/admin/partition.h"
#include "sql/operate/lookup_internal.h"
#include "sql/operate/operate_internal.h"
#include "sql/pipeline/store.h"
#include "sql_embedded.h"

#include <stdio.h>
#include <stdlib.h>

#define CHUNK 200
#define COUNT_CHUNK 5000

void operate_chunks_begin(struct operate_chunks *w)
{
    *w->count = (struct operate_count){0};
    w->until_ms = clock_monotonic_ms() + OPERATE_DRY_MS;
}

int operate_chunk_rows(const struct operate_chunks *w)
{
    return w->counts ? COUNT_CHUNK : CHUNK;
}

/* Within the time of a dry run; *spent: there is none left, which is no error. */
static PGresult *query_bounded(struct operate_chunks *w, const char *query, struct pg_params *p, bool *spent,
                               struct err *e)
{
    char text[60];
    int64_t left_ms = w->until_ms - clock_monotonic_ms();
    snprintf(text, sizeof text, "set statement_timeout = %lld", (long long)(left_ms > 0 ? left_ms : 1));
    PGresult *r = pg_exec(w->c, text, e) == 0 ? pg_query_keep(w->c, query, p, e) : NULL;
    pg_params_free(p);
    bool timed_out = !r && e->kind == ERR_BUSY && !pg_is_locked_out(w->c);
    if (!pg_is_broken(w->c) && pg_exec(w->c, "reset statement_timeout", r ? e : NULL) != 0) {
        PQclear(r);
        return NULL;
    }
    *spent = (r || timed_out) && clock_monotonic_ms() >= w->until_ms;
    if (!r && *spent) /* one statement would have taken longer than there was */
        err_clear(e);
    return r;
}

int operate_chunk(struct operate_chunks *w, const char *query, struct pg_params *p, const struct pg_to *to,
                  struct err *e)
{
    struct operate_count *k = w->count;
    bool spent = false;
    w->n = w->changed = 0;
    PGresult *r = w->dry_run ? query_bounded(w, query, p, &spent, e) : operate_query(w->c, query, p, e);
    if ((!r && !spent) || (r && pg_take(r, to, NULL, e) < 0))
        return -1;
    if (w->n > 0 && k->matched == 0)
        k->first = w->first;
    k->matched += w->n;
    k->changed += w->changed;
    if (w->n > 0 && w->progress && !w->progress(w->ctx, k->matched, k->changed))
        w->stopped = true;
    k->minimum = w->dry_run && (spent || k->matched >= OPERATE_DRY_ROWS);
    w->stopped = w->stopped || k->minimum;
    return w->n == operate_chunk_rows(w) && !w->stopped;
}

struct bulk {
    struct operate_chunks chunks;
    const struct operate_bulk *what;
    const struct operate_scope *who;
    struct lookup_filter filter;
    struct lookup_range range;
    struct buf states, keys; /* arrays */
    struct message_id after;
    int64_t started_us;
};

/* Those that the operation applies to, by the filter. What waits for another attempt has not failed yet. */
static bool applies(const struct bulk *b, enum message_state state)
{
    const struct lookup_filter *f = &b->filter;
    const enum operate_kind kind = b->what->kind;
    if (f->has_state && f->state != state)
        return false;
    switch (state) {
    case MESSAGE_FAILED:
        return !f->retrying && !f->waiting && kind != OPERATE_FAIL;
    case MESSAGE_SCHEDULED:
        return kind == OPERATE_CANCEL || kind == OPERATE_RESCHEDULE || (kind == OPERATE_RETRY && f->retrying);
    case MESSAGE_CLAIMED: /* in doubt */
        return kind == OPERATE_FAIL || (kind == OPERATE_RETRY && f->retrying);
    default:
        return false;
    }
}

static void put_states(struct bulk *b)
{
    size_t used = 0;
    for (int i = 0; i < MESSAGE_STATE_COUNT; i++)
        used += applies(b, (enum message_state)i);
    pg_array_begin(&b->states, PG_OID_TEXT, used);
    for (int i = 0; i < MESSAGE_STATE_COUNT; i++)
        if (applies(b, (enum message_state)i))
            pg_array_bytes(&b->states, bytes_of_str(message_state_name((enum message_state)i)));
}

/* 1: there may be more in this range; 0: end of it; -1: error. */
static int bulk_chunk(struct bulk *b, int64_t from_ms, int64_t to_ms, struct err *e)
{
    static const char *const names[] = {"cancel", "reschedule", "retry", "fail"};
    struct operate_chunks *w = &b->chunks;
    return operate_chunk(w, sql_query_operate_bulk,
                         PG_WITH(as_bound(from_ms), as_bound(to_ms), as_id(b->after),
                                 as_bytes(buf_bytes(&b->states)), as_text(b->filter.exchange),
                                 as_routing_key(&b->filter), as_int4(operate_chunk_rows(w)),
                                 as_text(buf_bytes(&b->keys)), as_filter_scope(&b->filter),
                                 as_int8(b->started_us), as_str(w->counts ? NULL : names[b->what->kind]),
                                 as_int8(b->what->kind == OPERATE_RESCHEDULE ? b->what->shift_ms : 0),
                                 as_who(b->who), as_bool(b->filter.retrying)),
                         PG_ROW(PG_TO(w->n), PG_TO(w->changed), PG_TO(w->first), PG_TO(b->after)), e);
}

static int bulk_walk(struct bulk *b, struct err *e)
{
    struct due_range *days = NULL;
    int n = partitions_all_filled(b->chunks.c, &days, e), rc = n < 0 ? -1 : 0;
    for (int i = 0; i < n && rc == 0 && !b->chunks.stopped; i++) {
        int64_t from = days[i].from_ms > b->range.from_ms ? days[i].from_ms : b->range.from_ms;
        int64_t to = days[i].to_ms < b->range.to_ms ? days[i].to_ms : b->range.to_ms;
        if (from >= to)
            continue;
        do
            rc = bulk_chunk(b, from, to, e);
        while (rc > 0);
    }
    free(days);
    return rc;
}

int operate_bulk(struct pg *c, const struct operate_scope *scope, const struct operate_bulk *what,
                 struct operate_count *out, struct err *e)
{
    struct bulk b = {.chunks = {.c = c,
                                .count = out,
                                .progress = what->progress,
                                .ctx = what->ctx,
                                .counts = what->dry_run,
                                .dry_run = what->dry_run},
                     .what = what,
                     .who = scope,
                     .filter = operate_filter(scope, what->filter),
                     .started_us = what->since_us};
    buf_init(&b.states, OPERATE_ARRAY_MAX);
    buf_init(&b.keys, OPERATE_ARRAY_MAX);
    operate_chunks_begin(&b.chunks);
    put_states(&b);
    int rc = what->since_us != 0 ? 0 : store_clock(c, &b.started_us, e);
    if (rc == 0)
        rc = lookup_key_array(c, &b.filter, &b.keys, &b.range, e);
    if (rc == 0 && b.states.failed)
        rc = err_set(e, ERR_BUG, "out of memory");
    if (rc == 0)
        rc = bulk_walk(&b, e);
    buf_free(&b.states);
    buf_free(&b.keys);
    return rc;
}
