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

int operate_hurry(struct pg *c, struct err *e)
{
    c->hurried = true;
    return pg_exec(c, "set lock_timeout = '2ms'", e);
}

PGresult *operate_query(struct pg *c, const char *query, struct pg_params *p, struct err *e)
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
    pg_params_free(p);
    return r;
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

static int find_latest(struct pg *c, struct message_id id, struct message_id *out, struct err *e)
{
    return pg_ask(c, sql_query_operate_moved_latest, PG_WITH(as_id(id)), PG_ROW(PG_TO(*out)), e);
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
        if (find_latest(c, id, &latest, e) != 0)
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
