#include "sql/operate/lookup_internal.h"

#include "core/base/clock.h"
#include "core/base/timestamp.h"
#include "sql/admin/partition.h"
#include "sql_embedded.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_ROWS 500
#define DAYS_AT_ONCE 8
#define CHUNK_LEAST 250 /* rows that are read before the clock is checked; uncached rows take long */
#define CHUNK_MOST 4000
#define LOOK_LEAST 10000 /* rows that are always looked at, so that small stores are listed whole; */
#define DAY_ROWS 100     /* as many rows as one more day costs */
#define RECORD_MAX (32u * 1024 * 1024)
#define ARRAY_MAX (1u << 20)
#define KEYS_MAX 10000 /* exchanges in which one key is used */

struct walk {
    struct pg *c;
    const struct lookup_filter *filter;
    struct lookup_page at; /* where the walk stands, and how many rows it may still give */
    bool (*fn)(void *ctx, const struct message_record *r);
    void *ctx;
    struct arena arena;
    struct buf ids; /* array of the messages that the filter's key names; unused without a key */
    bool stopped;
    int chunk;           /* so many rows are looked at next; 0: the filter needs no bound */
    int64_t deadline_ms; /* with a chunk */
    int64_t looked;      /* rows so far */
};

/* The last row of the next chunk. *last stays NULL: fewer are left. */
static int find_bound(struct walk *w, int64_t from_ms, int64_t to_ms, struct message_id *bound,
                      const struct message_id **last, struct err *e)
{
    if (w->chunk == 0)
        return 0;
    PGresult *r = pg_query(
        w->c,
        w->filter->newest     ? sql_query_list_newest_bound
        : w->filter->retrying ? sql_query_list_retrying_bound
                              : sql_query_list_bound,
        PG_WITH(as_bound(from_ms), as_bound(to_ms), as_id(w->at.after_id), as_int4(w->chunk - 1)), e);
    if (!r)
        return -1;
    if (PQntuples(r) > 0) {
        *bound = pg_id(r, 0, 0);
        *last = bound;
    }
    PQclear(r);
    return 0;
}

/* Continues behind id; all earlier matches were returned. True: the time is used up. */
static bool move_on(struct walk *w, int64_t due_ms, struct message_id id, int rows)
{
    w->at.has_after = true;
    w->at.after_due_ms = due_ms;
    w->at.after_id = id;
    w->chunk = w->chunk < CHUNK_MOST ? w->chunk * 2 : w->chunk;
    w->looked += rows;
    w->at.given_up = w->looked >= LOOK_LEAST && clock_monotonic_ms() >= w->deadline_ms;
    w->stopped = w->at.given_up;
    return w->stopped;
}

static PGresult *page_query(struct walk *w, int64_t from_ms, int64_t to_ms, const struct message_id *last,
                            struct err *e)
{
    const struct lookup_filter *f = w->filter;
    PG_PARAMS(p) = {
        {as_bound(from_ms), as_bound(to_ms), as_id(w->at.after_id) /* all zero before the first */,
         as_str(f->has_state ? message_state_name(f->state) : NULL), as_text(f->exchange), as_routing_key(f),
         as_int4(w->at.limit < PAGE_ROWS ? (int)w->at.limit : PAGE_ROWS), as_text(buf_bytes(&w->ids)),
         as_filter_scope(f), as_id(last ? *last : message_id_least(to_ms)), as_bool(f->waiting)}};
    return pg_query(w->c, f->retrying ? sql_query_list_retrying : sql_query_list_records, &p, e);
}

static PGresult *newest_query(struct walk *w, int64_t from_ms, int64_t to_ms, const struct message_id *last,
                              struct err *e)
{
    const struct lookup_filter *f = w->filter;
    PG_PARAMS(p) = {{as_bound(from_ms), as_bound(to_ms), as_id(w->at.after_id),
                     as_str(f->has_state ? message_state_name(f->state) : NULL), as_text(f->exchange),
                     as_routing_key(f), as_int4(w->at.limit < PAGE_ROWS ? (int)w->at.limit : PAGE_ROWS),
                     as_text(buf_bytes(&w->ids)), as_filter_scope(f),
                     as_id(last ? *last : message_id_least(from_ms)), as_bool(f->waiting),
                     as_bool(f->retrying)}};
    return pg_query(w->c, sql_query_list_newest, &p, e);
}

/* The next rows that match, of the next chunk. *last as find_bound. */
static PGresult *read_page(struct walk *w, int64_t from_ms, int64_t to_ms, struct message_id *bound,
                           const struct message_id **last, struct err *e)
{
    PGresult *r = NULL;
    if (pg_begin_by_index(w->c, e) == 0 && find_bound(w, from_ms, to_ms, bound, last, e) == 0)
        r = (w->filter->newest ? newest_query : page_query)(w, from_ms, to_ms, *last, e);
    if (pg_finish(w->c, r ? 0 : -1, e) == 0)
        return r;
    PQclear(r);
    return NULL;
}

/* Ids sort like due times: the index leads to the first of the range, not through all before it. */
static void skip_to(struct walk *w, int64_t due_ms)
{
    struct message_id before = message_id_least(due_ms);
    if (memcmp(before.b, w->at.after_id.b, sizeof before.b) > 0)
        w->at.after_id = before;
}

/* Moves w->at to the first waiting message of the range. 1: there is one; 0: none; -1: error. */
static int skip_settled(struct walk *w, int64_t from_ms, int64_t to_ms, struct err *e)
{
    PGresult *r =
        pg_query(w->c, sql_query_list_waiting_first, PG_WITH(as_bound(from_ms), as_bound(to_ms)), e);
    if (!r)
        return -1;
    bool waits = !pg_is_null(r, 0, 0) || !pg_is_null(r, 0, 1);
    int64_t first_ms = pg_is_null(r, 0, 0) ? INT64_MAX : pg_time_ms(r, 0, 0);
    if (!pg_is_null(r, 0, 1) && message_id_due_ms(pg_id(r, 0, 1)) < first_ms)
        first_ms = message_id_due_ms(pg_id(r, 0, 1));
    PQclear(r);
    if (waits)
        skip_to(w, first_ms);
    return waits;
}

/* 1: there may be more in this range; 0: end of it, or stopped; -1: error. */
static int walk_page(struct walk *w, int64_t from_ms, int64_t to_ms, struct err *e)
{
    int rows = w->at.limit < PAGE_ROWS ? (int)w->at.limit : PAGE_ROWS;
    struct message_id bound;
    const struct message_id *last = NULL;
    PGresult *r = read_page(w, from_ms, to_ms, &bound, &last, e);
    if (!r)
        return -1;
    int n = PQntuples(r), rc = n == rows;
    for (int i = 0; i < n && !w->stopped; i++) {
        struct message_record record;
        arena_reset(&w->arena);
        if (lookup_read_record(r, i, &w->arena, &record, e) != 0) {
            rc = -1;
            break;
        }
        w->at.has_after = true;
        w->at.after_due_ms = record.message.due_ms;
        w->at.after_id = record.message.id;
        w->at.limit--;
        w->stopped = !w->fn(w->ctx, &record) || w->at.limit == 0;
    }
    PQclear(r);
    if (rc == 0 && last && !w->stopped)
        return !move_on(w, message_id_due_ms(bound), bound, w->chunk);
    return rc < 0 ? -1 : rc && !w->stopped;
}

struct pg_value as_filter_scope(const struct lookup_filter *f)
{
    return f->scope ? as_texts(f->scope, f->scope_count) : as_null();
}

int lookup_key_array(struct pg *c, const struct lookup_filter *f, struct buf *out, struct lookup_range *range,
                     struct err *e)
{
    *range = (struct lookup_range){f->due_after_ms, f->due_before_ms};
    if (!f->key.data)
        return 0;
    PGresult *r = pg_query(c, sql_query_list_keys_named,
                           PG_WITH(as_bytes(f->key), as_filter_scope(f), as_int4(KEYS_MAX)), e);
    int n = r ? PQntuples(r) : 0;
    pg_array_begin(out, PG_OID_UUID, (size_t)n);
    for (int i = 0; i < n; i++)
        pg_array_id(out, pg_id(r, i, 0));
    int64_t first_ms = n ? message_id_due_ms(pg_id(r, 0, 0)) : 0;
    int64_t end_ms = n ? message_id_due_ms(pg_id(r, n - 1, 0)) + 1 : 0;
    range->from_ms = first_ms > range->from_ms ? first_ms : range->from_ms;
    range->to_ms = end_ms < range->to_ms ? end_ms : range->to_ms;
    PQclear(r);
    if (r && out->failed)
        return err_set(e, ERR_BUG, "out of memory");
    return r ? 0 : -1;
}

/* Few may match: the rows that do are looked for a chunk at a time. Those that a key names are found by an
 * index. */
static bool is_sparse(const struct lookup_filter *f)
{
    return !f->key.data &&
           (f->has_state || f->retrying || f->waiting || f->exchange.data || f->routing_key.data || f->scope);
}

/* All matches are waiting messages: an index skips settled ones. */
static bool is_of_waiting(const struct lookup_filter *f)
{
    return !f->retrying && (f->waiting || (f->has_state && f->state == MESSAGE_SCHEDULED));
}

/* The first days that are left, a few at a time: the first page mostly needs one. Returns how many there
 * were; -1: error. */
static int walk_days(struct walk *w, const struct lookup_range *range, int64_t *from_ms, struct err *e)
{
    struct due_range *days = NULL;
    const struct lookup_range left = {*from_ms, range->to_ms};
    int n = partitions_filled(w->c, left.from_ms, left.to_ms, DAYS_AT_ONCE, &days, e), rc = n < 0 ? -1 : 0;
    for (int i = 0; i < n && rc == 0 && !w->stopped; i++) {
        int64_t from = days[i].from_ms > range->from_ms ? days[i].from_ms : range->from_ms;
        int64_t end = days[i].to_ms, to = end < range->to_ms ? end : range->to_ms;
        *from_ms = end;
        skip_to(w, from);
        bool waits = is_of_waiting(w->filter);
        rc = waits ? skip_settled(w, from, to, e) : 1;
        while (rc > 0)
            rc = walk_page(w, from, to, e);
        if (rc == 0 && w->chunk > 0 && !w->stopped)
            move_on(w, end, message_id_least(end), DAY_ROWS);
    }
    free(days);
    return rc < 0 ? -1 : n;
}

/* From the last day to the first. */
static int walk_back(struct walk *w, const struct lookup_range *range, struct err *e)
{
    struct due_range *days = NULL;
    int n = partitions_all_filled(w->c, &days, e), rc = n < 0 ? -1 : 0;
    if (!w->at.has_after)
        memset(w->at.after_id.b, 0xff, sizeof w->at.after_id.b);
    for (int i = n - 1; i >= 0 && rc == 0 && !w->stopped; i--) {
        int64_t from = days[i].from_ms > range->from_ms ? days[i].from_ms : range->from_ms;
        int64_t to = days[i].to_ms < range->to_ms ? days[i].to_ms : range->to_ms;
        struct message_id begins = message_id_least(from), ends = message_id_least(to);
        if (from >= to || memcmp(w->at.after_id.b, begins.b, sizeof begins.b) <= 0)
            continue;
        if (memcmp(ends.b, w->at.after_id.b, sizeof ends.b) < 0)
            w->at.after_id = ends;
        while ((rc = walk_page(w, from, to, e)) > 0) {
        }
        if (rc == 0 && w->chunk > 0 && !w->stopped)
            move_on(w, from, begins, DAY_ROWS);
    }
    free(days);
    return rc;
}

int lookup_list(struct pg *c, const struct lookup_filter *f, struct lookup_page *page,
                bool (*fn)(void *ctx, const struct message_record *r), void *ctx, struct err *e)
{
    struct walk w = {.c = c, .filter = f, .at = *page, .fn = fn, .ctx = ctx, .stopped = page->limit <= 0};
    struct lookup_range range = {0};
    if (page->budget_ms > 0 && is_sparse(f)) {
        w.chunk = CHUNK_LEAST;
        w.deadline_ms = clock_monotonic_ms() + page->budget_ms;
    }
    arena_init(&w.arena, RECORD_MAX);
    buf_init(&w.ids, ARRAY_MAX);
    int n = DAYS_AT_ONCE, rc = lookup_key_array(c, f, &w.ids, &range, e);
    int64_t from_ms = w.at.has_after && w.at.after_due_ms > range.from_ms ? w.at.after_due_ms : range.from_ms;
    if (rc == 0 && f->newest)
        rc = walk_back(&w, &range, e);
    while (rc == 0 && !f->newest && n == DAYS_AT_ONCE && !w.stopped && from_ms < range.to_ms)
        rc = (n = walk_days(&w, &range, &from_ms, e)) < 0 ? -1 : 0;
    *page = w.at;
    arena_free(&w.arena);
    buf_free(&w.ids);
    return rc;
}
