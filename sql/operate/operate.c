
#include "sql/operate/operate.h"
#include "core/base/clock.h"
#include "core/base/timestamp.h"
#include "sql/admin/partition.h"
#include "sql/operate/lookup_internal.h"
#include "sql/operate/operate_internal.h"
#include "sql/pipeline/store.h"
#include "sql_embedded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPERATE_DRY_ROWS 1000000
#define OPERATE_DRY_MS 3000

#define OPERATE_ARRAY_MAX (1u << 20)

#define TRIES_MAX 6
#define FIRST_PAUSE_MS 20
#define MOVES_MAX 10 /* between two look-ups; more in a row do not come from normal use */

static const char *const answers[] = {"done", "too_late", "not_found", "not_failed", "key_taken", "busy"};
#define ANSWERS 6

int operate_hurry(struct pg *c, struct err *e)
{
    c->hurried = true;
    return pg_exec(c, "set lock_timeout = '2ms'", e);
}

/* Each query has $1 id, $2 scope; then the due time, or the caller. */
static const struct {
    enum sql_query query;
    bool takes_due, takes_who;
} operations[] = {
    [OPERATE_CANCEL] = {.query = sql_query_operate_cancel},
    [OPERATE_RESCHEDULE] = {.query = sql_query_operate_reschedule, .takes_due = true},
    [OPERATE_RETRY] = {.query = sql_query_operate_retry},
    [OPERATE_FAIL] = {.query = sql_query_operate_fail, .takes_who = true},
};

PGresult *operate_query(struct pg *c, enum sql_query query, const struct pg_params *p, struct err *e)
{
    const char *patience = c->hurried ? NULL : "set local lock_timeout = '500ms'";
    PGresult *r = NULL;
    err_clear(e);
    for (int tries = 0; tries < TRIES_MAX && !r; tries++) {
        if (tries > 0)
            clock_nap_ms((int64_t)FIRST_PAUSE_MS << tries);
        r = pg_query_sure(c, patience, query, p, e);
        if (pg_is_broken(c) || (!r && (e->kind != ERR_BUSY || (c->hurried && pg_is_locked_out(c)))))
            break;
    }
    return r;
}

/* A filter that has the scope, and nothing else unless f is given. */
static struct lookup_filter operate_filter(const struct operate_scope *scope, const struct lookup_filter *f)
{
    static const struct bytes none;
    struct lookup_filter out = f ? *f : (struct lookup_filter){.due_before_ms = TIMESTAMP_MAX_MS + 1};
    if (scope && !scope->all) {
        out.scope = scope->exchanges ? scope->exchanges : &none;
        out.scope_count = scope->count;
    }
    return out;
}

/* null: unknown */
static struct pg_value as_who(const struct operate_scope *scope)
{
    return as_str(scope ? scope->who : NULL);
}

struct pg_value as_scope(const struct operate_scope *scope)
{
    return scope && !scope->all ? as_texts(scope->exchanges, scope->count) : as_null();
}

static int read_answer(const PGresult *r, struct message_id wanted, struct operate_result *out, struct err *e)
{
    char result[16];
    pg_text(r, 0, 0, result, sizeof result);
    out->id = pg_is_null(r, 0, 1) || strcmp(result, "not_found") == 0 ? wanted : pg_id(r, 0, 1);
    for (int i = 0; i < ANSWERS; i++)
        if (strcmp(result, answers[i]) == 0) {
            out->answer = (enum operate_answer)i;
            return 0;
        }
    if (strcmp(result, "too_far") == 0)
        return err_set(e, ERR_REJECT, "the due time is too far ahead: beyond delivery.max_delay");
    if (strcmp(result, "past_deadline") == 0)
        return err_set(e, ERR_REJECT,
                       "the due time is after the message's deadline, which cannot be changed");
    return err_set(e, ERR_BUG, "unexpected answer '%s'", result);
}

int operate_message(struct pg *c, const struct operate_scope *scope, const struct operate_request *q,
                    struct operate_result *out, struct err *e)
{
    PG_PARAMS(p) = {{as_id(q->id), as_scope(scope)}};
    if (operations[q->kind].takes_due) {
        /* Values far out of range stay so, and fit PostgreSQL's types. */
        int64_t ms = q->due.ms > TIMESTAMP_MAX_MS ? TIMESTAMP_MAX_MS : q->due.ms < 0 ? 0 : q->due.ms;
        pg_add(&p, q->due.is_delay ? as_null() : as_time(ms));
        pg_add(&p, q->due.is_delay ? as_int8(ms) : as_null());
    }
    if (operations[q->kind].takes_who)
        pg_add(&p, as_who(scope));
    PGresult *r = operate_query(c, operations[q->kind].query, &p, e);
    int rc = r ? read_answer(r, q->id, out, e) : -1;
    PQclear(r);
    return rc;
}

int operate_cancel_key(struct pg *c, const struct operate_scope *scope, struct bytes exchange,
                       struct bytes key, struct operate_result *out, struct err *e)
{
    const struct message_id none = {{0}};
    PGresult *r = operate_query(c, sql_query_operate_cancel_key,
                                PG_WITH(as_bytes(exchange), as_bytes(key), as_scope(scope)), e);
    if (!r)
        return -1;
    *out = (struct operate_result){.answer = OPERATE_NOT_FOUND, .id = none};
    int rc = PQntuples(r) > 0 ? read_answer(r, none, out, e) : 0;
    PQclear(r);
    return rc;
}

int operate_find_key(struct pg *c, const struct operate_scope *scope, struct bytes exchange, struct bytes key,
                     struct message_id *out, struct err *e)
{
    char key_text[120], exchange_text[120];
    PGresult *r = pg_query(c, sql_query_operate_find_key,
                           PG_WITH(as_bytes(exchange), as_bytes(key), as_scope(scope)), e);
    bool found = r && PQntuples(r) > 0;
    if (found)
        *out = pg_id(r, 0, 0);
    PQclear(r);
    if (!r || found)
        return r ? 0 : -1;
    return err_set(e, ERR_NOT_FOUND, "no message has the key '%s' in exchange '%s'",
                   bytes_printable(key, key_text, sizeof key_text),
                   bytes_printable(exchange, exchange_text, sizeof exchange_text));
}

/* The ids that it had before, and for a slot of which rate it waits, if it does. */
static int add_more(struct pg *c, struct arena *a, struct message_record *r, struct err *e)
{
    struct message_rate *x = &r->rate;
    if (pg_take(pg_query(c, sql_query_operate_former_ids, PG_WITH(as_id(r->message.id)), e),
                PG_ROW(PG_TO(r->former_ids)), a, e) < 0)
        return -1;
    if (r->settled_ms >= 0 || r->state == MESSAGE_HANDED)
        return 0;
    int found = pg_take(pg_query(c, sql_query_operate_rate, PG_WITH(as_id(r->message.id)), e),
                        PG_ROW(PG_TO(x->exchange), PG_TO(x->routing_key), PG_TO(x->rate), PG_TO(x->paused),
                               PG_TIME(x->slot_ms)),
                        a, e);
    r->waits_for_slot = found > 0;
    return found < 0 ? -1 : 0;
}

/* The same queries are asked whether the message does not exist or is not the caller's, and a foreign one's
 * body is never read: neither the answer nor the time that it takes tells the two apart. */
int operate_show(struct pg *c, const struct operate_scope *scope, struct message_id id, struct arena *a,
                 struct message_record *out, struct err *e)
{
    char text[MESSAGE_ID_TEXT_SIZE];
    struct message_id latest = id, before;
    int found = 0;
    for (int i = 0; i < MOVES_MAX; i++) {
        before = latest;
        if (pg_ask(c, sql_query_operate_moved_latest, PG_WITH(as_id(id)), PG_ROW(PG_TO(latest)), e) != 0)
            return -1;
        if (i > 0 && message_id_equal(before, latest))
            break;
        found = message_id_is_ours(latest) ? lookup_find(c, as_scope(scope), latest, a, out, e) : 0;
        if (found <= 0 || out->state != MESSAGE_SUPERSEDED)
            break;
    }
    if (found == 0)
        return err_set(e, ERR_NOT_FOUND, "no message has the id %s", message_id_format(id, text));
    return found > 0 ? add_more(c, a, out, e) : -1;
}

int operate_list(struct pg *c, const struct operate_scope *scope, const struct operate_list *l, struct err *e)
{
    const struct lookup_filter scoped = operate_filter(scope, l->filter);
    return lookup_list(c, &scoped, l->page, l->each, l->ctx, e);
}

/* --- Bulk operations walk the partitions like a listing, in chunks. */

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
static PGresult *query_bounded(struct operate_chunks *w, enum sql_query query, const struct pg_params *p,
                               bool *spent, struct err *e)
{
    char text[60];
    int64_t left_ms = w->until_ms - clock_monotonic_ms();
    snprintf(text, sizeof text, "set statement_timeout = %lld", (long long)(left_ms > 0 ? left_ms : 1));
    PGresult *r = pg_exec(w->c, text, e) == 0 ? pg_query(w->c, query, p, e) : NULL;
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

int operate_chunk(struct operate_chunks *w, enum sql_query query, const struct pg_params *p,
                  const struct pg_to *to, struct err *e)
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

/* The messages to which the operation applies, by the filter. A message that waits for another attempt is not
 * failed yet. */
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

/* 1: there may be more in this range; 0: end of it; -1: error. */
static int bulk_chunk(struct bulk *b, int64_t from_ms, int64_t to_ms, struct err *e)
{
    static const char *const names[] = {"cancel", "reschedule", "retry", "fail"};
    struct operate_chunks *w = &b->chunks;
    PG_PARAMS(p) = {{as_bound(from_ms), as_bound(to_ms), as_id(b->after), as_bytes(buf_bytes(&b->states)),
                     as_text(b->filter.exchange), as_routing_key(&b->filter), as_int4(operate_chunk_rows(w)),
                     as_text(buf_bytes(&b->keys)), as_filter_scope(&b->filter), as_int8(b->started_us),
                     as_str(w->counts ? NULL : names[b->what->kind]),
                     as_int8(b->what->kind == OPERATE_RESCHEDULE ? b->what->shift_ms : 0), as_who(b->who),
                     as_bool(b->filter.retrying)}};
    return operate_chunk(w, sql_query_operate_bulk, &p,
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
    size_t used = 0;
    for (int i = 0; i < MESSAGE_STATE_COUNT; i++)
        used += applies(&b, (enum message_state)i);
    pg_array_begin(&b.states, PG_OID_TEXT, used);
    for (int i = 0; i < MESSAGE_STATE_COUNT; i++)
        if (applies(&b, (enum message_state)i))
            pg_array_bytes(&b.states, bytes_of_str(message_state_name((enum message_state)i)));
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
