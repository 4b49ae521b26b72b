#include "sql/operate/operate.h"

#include "core/base/clock.h"
#include "core/base/timestamp.h"
#include "sql/operate/lookup_internal.h"
#include "sql/operate/operate_internal.h"
#include "sql_embedded.h"

#include <string.h>

#define TRIES_MAX 6
#define FIRST_PAUSE_MS 20
#define MOVES_MAX 10 /* between two look-ups; more in a row do not come from normal use */

static const char *const answers[] = {"done", "too_late", "not_found", "not_failed", "key_taken", "busy"};
#define ANSWERS 6

const char *operate_answer_name(enum operate_answer a)
{
    return answers[a];
}

int operate_hurry(struct pg *c, struct err *e)
{
    c->hurried = true;
    return pg_exec(c, "set lock_timeout = '2ms'", e);
}

PGresult *operate_query(struct pg *c, const char *query, struct pg_params *p, struct err *e)
{
    PGresult *r = NULL;
    err_clear(e);
    for (int tries = 0; tries < TRIES_MAX && !r; tries++) {
        if (tries > 0)
            clock_nap_ms((int64_t)FIRST_PAUSE_MS << tries);
        c->committed_locally = false;
        if (c->hurried || pg_exec(c, "set lock_timeout = '500ms'", e) == 0)
            r = pg_query_keep(c, query, p, e);
        if (pg_is_broken(c) || (!r && (e->kind != ERR_BUSY || (c->hurried && pg_is_locked_out(c)))))
            break;
    }
    pg_params_free(p);
    if (!c->hurried && !pg_is_broken(c))
        pg_exec(c, "set lock_timeout = '" PG_LOCK_TIMEOUT "'", NULL);
    if (!r || !c->committed_locally)
        return r;
    PQclear(r);
    err_set(e, ERR_AWAY, "Postgres committed locally only: the synchronous standby did not confirm");
    return NULL;
}

struct lookup_filter operate_filter(const struct operate_scope *scope, const struct lookup_filter *f)
{
    static const struct bytes none;
    struct lookup_filter out = f ? *f : (struct lookup_filter){.due_before_ms = TIMESTAMP_MAX_MS + 1};
    if (scope && !scope->all) {
        out.scope = scope->exchanges ? scope->exchanges : &none;
        out.scope_count = scope->count;
    }
    return out;
}

struct pg_value as_who(const struct operate_scope *scope)
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
        return err_set(e, ERR_REJECT, "the due time lies after the message's deadline, which stays as it is");
    return err_set(e, ERR_BUG, "unexpected answer '%s'", result);
}

static void add_due(struct pg_params *p, const struct operate_due *due)
{
    /* What is far out of range stays so, and fits into Postgres' types. */
    int64_t ms = due->ms > TIMESTAMP_MAX_MS ? TIMESTAMP_MAX_MS : due->ms < 0 ? 0 : due->ms;
    pg_add(p, due->is_delay ? as_null() : as_time(ms));
    pg_add(p, due->is_delay ? as_int8(ms) : as_null());
}

/* Each query takes $1 id, $2 scope; then the due time, or who asks. */
static const struct {
    const char *query;
    bool takes_due, takes_who;
} operations[] = {
    [OPERATE_CANCEL] = {.query = sql_query_operate_cancel},
    [OPERATE_RESCHEDULE] = {.query = sql_query_operate_reschedule, .takes_due = true},
    [OPERATE_RETRY] = {.query = sql_query_operate_retry},
    [OPERATE_FAIL] = {.query = sql_query_operate_fail, .takes_who = true},
};

int operate_message(struct pg *c, const struct operate_scope *scope, const struct operate_request *q,
                    struct operate_result *out, struct err *e)
{
    struct pg_params p = {{as_id(q->id), as_scope(scope)}};
    if (operations[q->kind].takes_due)
        add_due(&p, &q->due);
    if (operations[q->kind].takes_who)
        pg_add(&p, as_who(scope));
    PGresult *r = operate_query(c, operations[q->kind].query, &p, e);
    int rc = r ? read_answer(r, q->id, out, e) : -1;
    PQclear(r);
    return rc;
}

/* What the query says of the message with this key: $1 exchange, $2 key, $3 scope. */
static PGresult *query_key(struct pg *c, const struct operate_scope *scope, const char *query,
                           struct bytes exchange, struct bytes key, struct err *e)
{
    return operate_query(c, query, PG_WITH(as_bytes(exchange), as_bytes(key), as_scope(scope)), e);
}

int operate_cancel_key(struct pg *c, const struct operate_scope *scope, struct bytes exchange,
                       struct bytes key, struct operate_result *out, struct err *e)
{
    const struct message_id none = {{0}};
    PGresult *r = query_key(c, scope, sql_query_operate_cancel_key, exchange, key, e);
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
    PGresult *r = query_key(c, scope, sql_query_operate_find_key, exchange, key, e);
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

int operate_latest_id(struct pg *c, struct message_id id, struct message_id *out, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_operate_moved_latest, PG_WITH(as_id(id)), e);
    if (!r)
        return -1;
    *out = pg_id(r, 0, 0);
    PQclear(r);
    return 0;
}

static int add_former_ids(struct pg *c, struct arena *a, struct message_record *r, struct err *e)
{
    PGresult *found = pg_query(c, sql_query_operate_former_ids, PG_WITH(as_id(r->message.id)), e);
    if (!found)
        return -1;
    struct bytes ids = pg_bytes(found, 0, 0);
    r->former_ids = arena_copy(a, ids);
    PQclear(found);
    if (ids.len > 0 && !r->former_ids.data)
        return err_set(e, ERR_BUG, "a message of more than %zu bytes does not fit into memory", a->limit);
    return 0;
}

/* For a slot of which rate it waits, if it does. */
static int add_rate(struct pg *c, struct arena *a, struct message_record *r, struct err *e)
{
    if (r->settled_ms >= 0 || r->state == MESSAGE_HANDED)
        return 0;
    PGresult *found = pg_query(c, sql_query_operate_rate, PG_WITH(as_id(r->message.id)), e);
    if (!found)
        return -1;
    int rc = 0;
    if (PQntuples(found) > 0) {
        r->waits_for_slot = true;
        r->rate = (struct message_rate){.per_second = pg_float8(found, 0, 2),
                                        .paused = pg_bool(found, 0, 3),
                                        .slot_ms = pg_time_ms(found, 0, 4)};
        if (!pg_copy(found, 0, 0, a, &r->rate.exchange) || !pg_copy(found, 0, 1, a, &r->rate.routing_key))
            rc = err_set(e, ERR_BUG, "a message of more than %zu bytes does not fit into memory", a->limit);
    }
    PQclear(found);
    return rc;
}

/* 1: it is in out; 0: there is none in the scope. */
static int find_in_scope(struct pg *c, const struct operate_scope *scope, struct message_id id,
                         struct arena *a, struct message_record *out, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_operate_show, PG_WITH(as_id(id), as_scope(scope)), e);
    int rc = !r ? -1 : PQntuples(r) > 0;
    if (rc > 0 && lookup_read_record(r, 0, a, out, e) != 0)
        rc = -1;
    PQclear(r);
    return rc;
}

/* Showing a message to somebody who may see some exchanges only. The same queries are asked whether the
 * message does not exist or is not theirs, and a foreign one's body is never read: neither the answer nor the
 * time that it takes tells the two apart. */
static int show_scoped(struct pg *c, const struct operate_scope *scope, struct message_id id, struct arena *a,
                       struct message_record *out, struct err *e)
{
    char text[MESSAGE_ID_TEXT_SIZE];
    struct message_id latest = id, before;
    int rc = 0, found = 0;
    for (int i = 0; i < MOVES_MAX && rc == 0; i++) {
        before = latest;
        rc = operate_latest_id(c, id, &latest, e);
        if (i > 0 && message_id_equal(before, latest))
            break;
        found = rc == 0 && message_id_is_ours(latest) ? find_in_scope(c, scope, latest, a, out, e) : 0;
        rc = found < 0 ? -1 : rc;
        if (found == 0 || out->state != MESSAGE_SUPERSEDED)
            break;
    }
    if (rc != 0 || found > 0)
        return rc;
    return err_set(e, ERR_NOT_FOUND, "no message has the id %s", message_id_format(id, text));
}

static int show_any(struct pg *c, struct message_id id, struct arena *a, struct message_record *out,
                    struct err *e)
{
    char text[MESSAGE_ID_TEXT_SIZE];
    struct message_id latest = id;
    int rc = lookup_by_id(c, id, a, out, e);
    for (int i = 0; i < MOVES_MAX && (rc == 0 ? out->state == MESSAGE_SUPERSEDED : e->kind == ERR_NOT_FOUND);
         i++) {
        if (operate_latest_id(c, id, &latest, e) != 0)
            return -1;
        if (message_id_equal(latest, id))
            break;
        rc = lookup_by_id(c, latest, a, out, e);
    }
    if (rc != 0 && e->kind != ERR_NOT_FOUND)
        return -1;
    if (rc != 0)
        return err_set(e, ERR_NOT_FOUND, "no message has the id %s", message_id_format(id, text));
    return 0;
}

int operate_show(struct pg *c, const struct operate_scope *scope, struct message_id id, struct arena *a,
                 struct message_record *out, struct err *e)
{
    int rc = scope && !scope->all ? show_scoped(c, scope, id, a, out, e) : show_any(c, id, a, out, e);
    if (rc == 0)
        rc = add_former_ids(c, a, out, e);
    return rc == 0 ? add_rate(c, a, out, e) : rc;
}

int operate_list(struct pg *c, const struct operate_scope *scope, const struct operate_list *l, struct err *e)
{
    const struct lookup_filter scoped = operate_filter(scope, l->filter);
    return lookup_list(c, &scoped, l->page, l->each, l->ctx, e);
}
