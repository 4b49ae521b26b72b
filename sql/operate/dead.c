
#include "sql/operate/dead.h"
#include "core/base/duration.h"
#include "core/message/retry_policy.h"
#include "sql/connection/pg_internal.h"
#include "sql/operate/lookup_internal.h"
#include "sql/operate/operate_internal.h"
#include "sql_embedded.h"

#include <stdio.h>
#include <string.h>

struct dead_page {
    const struct dead_filter *filter;
    const struct operate_scope *scope;
    const struct dead_position *after;
    int64_t before_us; /* 0: any */
    int limit;
};

#define PAGE_ROWS 500

bool dead_is_reason(struct bytes name)
{
    return death_reason_parse(name) != 0 || bytes_equal_str(name, "deadline") ||
           bytes_equal_str(name, "return_failed");
}

/* The first parameters of query/dead_list.sql and query/dead_bulk.sql: those of postdate.dead_page. */
static void dead_params(struct pg_params *p, const struct dead_page *page)
{
    const struct dead_filter *f = page->filter;
    const struct dead_position *after = page->after;
    bool goes_on = after->queue.data != NULL;
    *p = (struct pg_params){
        {goes_on ? as_int8(after->died_us) : as_null(), goes_on ? as_id(after->id) : as_null(),
         as_text(after->queue), as_like(f->queue, true), as_text(f->reason), as_text(f->exchange),
         as_text(f->routing_key), as_scope(page->scope), f->ids ? as_ids(f->ids, f->id_count) : as_null(),
         page->before_us ? as_int8(page->before_us) : as_null(), as_int4(page->limit)}};
}

/* Views into the result. */
static void read_record(const PGresult *r, int row, struct dead_letter_record *out)
{
    *out = (struct dead_letter_record){.id = pg_id(r, row, 0),
                                       .queue = pg_bytes(r, row, 1),
                                       .exchange = pg_bytes(r, row, 2),
                                       .routing_key = pg_bytes(r, row, 3),
                                       .failed = pg_int4(r, row, 5),
                                       .died_us = pg_int8(r, row, 6),
                                       .expires_ms = pg_time_ms(r, row, 7),
                                       .body_size = pg_int8(r, row, 8),
                                       .next_ms = -1};
    pg_text(r, row, 4, out->reason, sizeof out->reason);
}

int dead_list(struct pg *c, const struct operate_scope *scope, const struct dead_list *l, struct err *e)
{
    struct dead_position at = l->after;
    int64_t left = l->limit;
    int rc = 0;
    PGresult *before = NULL; /* what at.queue points into */
    while (rc == 0 && left > 0) {
        int rows = left < PAGE_ROWS ? (int)left : PAGE_ROWS, n = 0;
        struct dead_page page = {.filter = l->filter, .scope = scope, .after = &at, .limit = rows};
        PG_PARAMS(p) = {0};
        dead_params(&p, &page);
        PGresult *r = pg_query(c, sql_query_dead_list, &p, e);
        PQclear(before);
        before = r;
        rc = r ? 0 : -1;
        for (n = 0; r && n < PQntuples(r) && left > 0; n++, left--) {
            struct dead_letter_record record;
            read_record(r, n, &record);
            at = (struct dead_position){record.died_us, record.id, record.queue};
            if (!l->each(l->ctx, &record))
                left = 1;
        }
        if (n < rows)
            break;
    }
    PQclear(before);
    return rc;
}

int dead_groups(struct pg *c, const struct operate_scope *scope, const struct dead_filter *f, struct arena *a,
                struct dead_groups *out, struct err *e)
{
    PG_PARAMS(p) = {{as_like(f->queue, true), as_text(f->reason), as_text(f->exchange),
                     as_text(f->routing_key), as_scope(scope), as_int4(DEAD_LOOKED_MAX),
                     as_int4(DEAD_GROUPS_MAX)}};
    PGresult *r = pg_query(c, sql_query_dead_groups, &p, e);
    struct dead_group g;
    const struct pg_rows rows = {PG_ROW(PG_TO(g.queue), PG_TO(g.reason), PG_TO(g.exchange),
                                        PG_TO(g.routing_key), PG_TO(g.count), PG_TIME(g.oldest_ms),
                                        PG_TIME(g.newest_ms)),
                                 &g, sizeof g, a};
    *out = (struct dead_groups){.complete = !r || PQntuples(r) == 0 || pg_bool(r, 0, 7)};
    int n = pg_take_all(r, &rows, &out->groups, e);
    out->count = n < 0 ? 0 : (size_t)n;
    return n < 0 ? -1 : 0;
}

/* "a", "b" or "c" */
static int fail_ambiguous(const PGresult *r, int rows, struct err *e)
{
    char names[300] = "", shown[80];
    size_t used = 0;
    for (int i = 0; i < rows && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s\"%s\"", i > 0 ? ", " : "",
                                 bytes_printable(pg_bytes(r, i, 0), shown, sizeof shown));
    return err_set(e, ERR_REJECT, "several queues have rejected it: specify one of them as queue: %s%s",
                   names, rows > 10 ? ", …" : "");
}

static PGresult *query_queues(struct pg *c, const struct operate_scope *scope, const struct dead_name *name,
                              struct err *e)
{
    return pg_query(c, sql_query_dead_queues, PG_WITH(as_id(name->id), as_text(name->queue), as_scope(scope)),
                    e);
}

bool dead_explain(struct pg *c, const struct operate_scope *scope, struct message_id id, struct err *e)
{
    const struct dead_name name = {.id = id};
    char shown[80];
    struct err ignored = {0};
    PGresult *r = query_queues(c, scope, &name, &ignored);
    size_t used = strlen(e->text);
    bool known = r && PQntuples(r) > 0;
    if (known)
        snprintf(e->text + used, sizeof e->text - used, "; %s queue \"%s\" (`postdate dead show` tells more)",
                 pg_bool(r, 0, 1) ? "it is a dead letter of"
                                  : "it waits for its next delivery, or had it, to",
                 bytes_printable(pg_bytes(r, 0, 0), shown, sizeof shown));
    PQclear(r);
    return known;
}

/* The queue that is meant, in the arena. */
static int find_queue(struct pg *c, const struct operate_scope *scope, const struct dead_name *name,
                      struct bytes *queue, struct arena *a, struct err *e)
{
    char text[MESSAGE_ID_TEXT_SIZE];
    PGresult *r = query_queues(c, scope, name, e);
    int n = r ? PQntuples(r) : 0, dead = 0, rc;
    while (dead < n && pg_bool(r, dead, 1))
        dead++;
    rc = r ? 0 : -1;
    if (r && n == 0)
        rc = err_set(e, ERR_NOT_FOUND, "no dead letter has the id %s", message_id_format(name->id, text));
    else if (n > 1 && dead != 1)
        rc = fail_ambiguous(r, dead > 0 ? dead : n, e);
    else if (n > 0 && !(*queue = arena_copy(a, pg_bytes(r, 0, 0))).data)
        rc = err_set(e, ERR_BUG, "out of memory");
    PQclear(r);
    return rc;
}

static int read_attempts(struct pg *c, const struct pg_params *p, struct arena *a,
                         struct dead_letter_record *out, struct err *e)
{
    struct dead_attempt x;
    const struct pg_rows rows = {PG_ROW(PG_TIME(x.at_ms), PG_TO(x.reason)), &x, sizeof x, a};
    int n = pg_take_all(pg_query(c, sql_query_dead_attempts, p, e), &rows, &out->attempts, e);
    out->attempt_count = n < 0 ? 0 : (size_t)n;
    return n < 0 ? -1 : 0;
}

static int read_whole(const PGresult *r, struct arena *a, struct dead_letter_record *out, struct err *e)
{
    bool waits, kept;
    *out = (struct dead_letter_record){.next_ms = -1};
    kept =
        pg_read(r, 0,
                PG_ROW(PG_TO(out->id), PG_TO(out->queue), PG_TO(out->exchange), PG_TO(out->routing_key),
                       PG_TO(out->reason), PG_TO(out->failed), PG_TO(out->died_us), PG_TIME(out->expires_ms),
                       PG_TO(out->body_size), PG_TO(out->properties), PG_TO(out->body), PG_TO(out->error),
                       PG_TO(out->message), PG_TO(out->has_message), PG_TO(waits), PG_TIME(out->next_ms)),
                a);
    if (!kept)
        return err_set(e, ERR_BUG, "a dead letter of more than %zu bytes does not fit into memory", a->limit);
    out->state = out->died_us >= 0 ? DEAD_DEAD : waits ? DEAD_WAITING : DEAD_RETURNED;
    if (out->state != DEAD_WAITING)
        out->next_ms = -1;
    return 0;
}

int dead_show(struct pg *c, const struct operate_scope *scope, const struct dead_name *name, struct arena *a,
              struct dead_letter_record *out, struct err *e)
{
    char text[MESSAGE_ID_TEXT_SIZE];
    struct bytes queue = {0};
    if (find_queue(c, scope, name, &queue, a, e) != 0)
        return -1;
    PG_PARAMS(p) = {{as_id(name->id), as_bytes(queue)}};
    PGresult *r = pg_query(c, sql_query_dead_show, &p, e);
    int rc = r ? 0 : -1;
    if (r && PQntuples(r) == 0)
        rc = err_set(e, ERR_NOT_FOUND, "no dead letter has the id %s", message_id_format(name->id, text));
    else if (r)
        rc = read_whole(r, a, out, e);
    PQclear(r);
    return rc == 0 ? read_attempts(c, &p, a, out, e) : -1;
}

/* --- Requeueing and dropping many, in chunks. */

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
        PG_PARAMS(p) = {0};
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
    return err_set(
        e, ERR_REJECT, "rate: the last of %lld would return to its queue in %s (allowed: at most %s)",
        (long long)b->chunks.count->matched, duration_format_human((int64_t)shown_ms, takes, sizeof takes),
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
