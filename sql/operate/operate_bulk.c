/* Bulk operations walk the partitions like a listing: a page of ids, then one transaction for them. */
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
#define COUNT_CHUNK 5000 /* of a dry run */

/* Dry runs are bounded: who asks wants to know what a change will touch, and whether it is many. */
void operate_dry_begin(struct operate_dry *d)
{
    *d = (struct operate_dry){.until_ms = clock_monotonic_ms() + OPERATE_DRY_MS};
}

int operate_dry_limit(struct operate_dry *d, struct pg *c, struct err *e)
{
    char text[60];
    int64_t left_ms = d->until_ms - clock_monotonic_ms();
    snprintf(text, sizeof text, "set statement_timeout = %lld", (long long)(left_ms > 0 ? left_ms : 1));
    return pg_exec(c, text, e);
}

int operate_dry_end(struct operate_dry *d, struct pg *c, bool failed, struct err *e)
{
    bool timed_out = failed && e->kind == ERR_BUSY && !pg_is_locked_out(c);
    if (!pg_is_broken(c) && pg_exec(c, "reset statement_timeout", failed ? NULL : e) != 0)
        return -1;
    d->spent = clock_monotonic_ms() >= d->until_ms;
    if (!failed)
        return 0;
    if (!timed_out || !d->spent)
        return -1;
    err_clear(e); /* one statement would have taken longer than there was */
    return 0;
}

struct bulk {
    struct pg *c;
    const struct operate_bulk *what;
    const struct operate_scope *who;
    struct lookup_filter filter;
    struct lookup_range range;
    struct buf states, keys, page; /* arrays */
    struct message_id after;
    int64_t started_us;
    struct operate_count *count;
    struct operate_dry dry;
    bool stopped;
};

static void put_states(struct bulk *b)
{
    static const enum message_state waiting[] = {MESSAGE_FAILED, MESSAGE_SCHEDULED},
                                    doubted[] = {MESSAGE_CLAIMED};
    const enum message_state *all = b->what->kind == OPERATE_FAIL ? doubted : waiting;
    size_t n = b->what->kind == OPERATE_CANCEL || b->what->kind == OPERATE_RESCHEDULE ? 2 : 1, used = 0;
    const struct lookup_filter *f = &b->filter;
    for (size_t i = 0; i < n; i++)
        used += !f->has_state || f->state == all[i];
    pg_array_begin(&b->states, PG_OID_TEXT, used);
    for (size_t i = 0; i < n; i++)
        if (!f->has_state || f->state == all[i])
            pg_array_bytes(&b->states, bytes_of_str(message_state_name(all[i])));
}

static PGresult *page_query(struct bulk *b, int64_t from_ms, int64_t to_ms, int rows, struct err *e)
{
    struct pg_params p = {0};
    pg_add(&p, as_bound(from_ms));
    pg_add(&p, as_bound(to_ms));
    pg_add(&p, as_id(b->after));
    pg_add(&p, as_bytes(buf_bytes(&b->states)));
    pg_add(&p, as_text(b->filter.exchange));
    pg_add(&p, as_routing_key(&b->filter));
    pg_add(&p, as_int4(rows));
    pg_add(&p, as_text(buf_bytes(&b->keys)));
    pg_add(&p, as_filter_scope(&b->filter));
    pg_add(&p, as_int8(b->started_us));
    if (!b->what->dry_run)
        return operate_query(b->c, sql_query_operate_bulk_page, &p, e);
    PGresult *r =
        operate_dry_limit(&b->dry, b->c, e) == 0 ? pg_query(b->c, sql_query_operate_bulk_page, &p, e) : NULL;
    if (operate_dry_end(&b->dry, b->c, !r, e) == 0)
        return r;
    PQclear(r);
    b->dry.spent = false; /* it is another failure */
    return NULL;
}

/* Of a dry run. */
static bool is_enough(const struct bulk *b)
{
    return b->what->dry_run && (b->dry.spent || b->count->matched >= OPERATE_DRY_ROWS);
}

static int apply_page(struct bulk *b, struct err *e)
{
    static const char *const names[] = {"cancel", "reschedule", "retry", "fail"};
    struct pg_params p = {0};
    pg_add(&p, as_str(names[b->what->kind]));
    pg_add(&p, as_bytes(buf_bytes(&b->page)));
    pg_add(&p, as_int8(b->what->kind == OPERATE_RESCHEDULE ? b->what->shift_ms : 0));
    pg_add(&p, as_filter_scope(&b->filter));
    pg_add(&p, as_who(b->who));
    PGresult *r = operate_query(b->c, sql_query_operate_bulk_apply, &p, e);
    if (!r)
        return -1;
    b->count->changed += pg_int4(r, 0, 0);
    PQclear(r);
    return 0;
}

/* 1: there may be more in this range; 0: end of it; -1: error. */
static int bulk_page(struct bulk *b, int64_t from_ms, int64_t to_ms, struct err *e)
{
    int rows = b->what->dry_run ? COUNT_CHUNK : CHUNK;
    PGresult *r = page_query(b, from_ms, to_ms, rows, e);
    if (!r && !b->dry.spent)
        return -1;
    int n = r ? PQntuples(r) : 0;
    pg_array_begin(&b->page, PG_OID_UUID, (size_t)n);
    for (int i = 0; i < n; i++) {
        b->after = pg_id(r, i, 0);
        pg_array_id(&b->page, b->after);
    }
    if (n > 0 && b->count->matched == 0)
        b->count->first = pg_id(r, 0, 0);
    PQclear(r);
    b->count->matched += n;
    if (b->page.failed)
        return err_set(e, ERR_BUG, "out of memory");
    if (n > 0 && !b->what->dry_run && apply_page(b, e) != 0)
        return -1;
    if (n > 0 && b->what->progress && !b->what->progress(b->what->ctx, b->count->matched, b->count->changed))
        b->stopped = true;
    b->count->minimum = is_enough(b);
    b->stopped = b->stopped || b->count->minimum;
    return n == rows && !b->stopped;
}

static int bulk_walk(struct bulk *b, struct err *e)
{
    struct due_range *days = NULL;
    int n = partitions_all_filled(b->c, &days, e), rc = n < 0 ? -1 : 0;
    for (int i = 0; i < n && rc == 0 && !b->stopped; i++) {
        int64_t from = days[i].from_ms > b->range.from_ms ? days[i].from_ms : b->range.from_ms;
        int64_t to = days[i].to_ms < b->range.to_ms ? days[i].to_ms : b->range.to_ms;
        if (from >= to)
            continue;
        do
            rc = bulk_page(b, from, to, e);
        while (rc > 0);
    }
    free(days);
    return rc;
}

int operate_bulk(struct pg *c, const struct operate_scope *scope, const struct operate_bulk *what,
                 struct operate_count *out, struct err *e)
{
    struct bulk b = {
        .c = c, .what = what, .who = scope, .filter = operate_filter(scope, what->filter), .count = out};
    struct buf *const arrays[] = {&b.states, &b.keys, &b.page};
    const size_t count = sizeof arrays / sizeof arrays[0];
    *out = (struct operate_count){0};
    for (size_t i = 0; i < count; i++)
        buf_init(arrays[i], OPERATE_ARRAY_MAX);
    put_states(&b);
    operate_dry_begin(&b.dry);
    b.started_us = what->since_us;
    int rc = what->since_us != 0 ? 0 : store_clock(c, &b.started_us, e);
    if (rc == 0)
        rc = lookup_key_array(c, &b.filter, &b.keys, &b.range, e);
    if (rc == 0 && b.states.failed)
        rc = err_set(e, ERR_BUG, "out of memory");
    if (rc == 0)
        rc = bulk_walk(&b, e);
    for (size_t i = 0; i < count; i++)
        buf_free(arrays[i]);
    return rc;
}
