/* Operations on single messages, and the table of all. */
#include "core/base/duration.h"
#include "core/base/timestamp.h"
#include "gateway/api/api_internal.h"
#include "gateway/api/api_operation.h"

#include <stdio.h>
#include <string.h>

#define RECORD_MAX ((size_t)64 * 1024 * 1024)

static void answer_not_found(struct api_request *r)
{
    char shown[80];
    if (r->id.len > 0)
        api_fail(&r->answer, API_NOT_FOUND, "no message has the id %s",
                 bytes_printable(r->id, shown, sizeof shown));
    else
        api_fail(&r->answer, API_NOT_FOUND, "no message has this key in this exchange");
}

/* The message as it is now. */
static int answer_record(struct api_context *c, struct api_request *r, struct message_id id, bool full,
                         struct err *e)
{
    struct message_record record;
    struct arena arena;
    struct err print = {0};
    arena_init(&arena, RECORD_MAX);
    int rc = operate_show(c->pg, api_operate_scope(r), id, &arena, &record, e);
    r->answer.status = 200;
    r->answer.id = id;
    buf_reset(&r->answer.body);
    if (rc == 0 && json_message_print(&record, full ? JSON_STYLE_LINE : JSON_STYLE_NO_BODY, &r->answer.body,
                                      &print) != 0)
        api_fail(&r->answer, API_INTERNAL, "%s", print.text);
    else if (rc == 0)
        buf_put_str(&r->answer.body, "\n");
    else if (e->kind == ERR_NOT_FOUND) {
        r->answer.explained = dead_explain(c->pg, api_operate_scope(r), id, e);
        api_fail(&r->answer, API_NOT_FOUND, "%s", e->text);
        rc = 0;
    }
    arena_free(&arena);
    return rc;
}

int api_message_settled(struct api_context *c, const struct api_request *r, int64_t *out_ms, struct err *e)
{
    struct message_record record = {0};
    struct arena arena;
    arena_init(&arena, RECORD_MAX);
    int rc = operate_show(c->pg, api_operate_scope(r), r->answer.id, &arena, &record, e);
    if (rc != 0 && e->kind == ERR_NOT_FOUND)
        rc = 0;
    *out_ms = record.settled_ms;
    arena_free(&arena);
    return rc;
}

/* The key and exchange of a request without id. False: answered. */
static bool take_key(const struct api_context *c, struct api_request *r, struct bytes *exchange,
                     struct bytes *key)
{
    *key = api_param(r, "key");
    *exchange = api_param(r, "exchange");
    if (exchange->data == NULL)
        *exchange = bytes_of_str(c->rules.delivery_exchange);
    if (key->len >= 1 && key->len <= MESSAGE_NAME_MAX)
        return true;
    api_fail(&r->answer, API_INVALID_REQUEST,
             "name a message by its id in the address, or by key= (1 to %d bytes)", MESSAGE_NAME_MAX);
    return false;
}

static bool take_id(struct api_request *r, struct message_id *out)
{
    if (message_id_parse(r->id, out))
        return true;
    answer_not_found(r);
    return false;
}

int api_run_show(struct api_context *c, struct api_request *r, struct err *e)
{
    struct message_id id;
    struct bytes exchange, key, view = api_param(r, "view");
    bool by_key = r->id.len == 0;
    if (api_params_check(r, by_key ? (const char *const[]){"key", "exchange", "view", NULL}
                                   : (const char *const[]){"view", NULL}) != 0)
        return 0;
    if (view.data != NULL && !bytes_equal_str(view, "full") && !bytes_equal_str(view, "basic")) {
        api_fail(&r->answer, API_INVALID_REQUEST, "view: allowed are basic and full");
        return 0;
    }
    if (by_key ? !take_key(c, r, &exchange, &key) : !take_id(r, &id))
        return 0;
    if (by_key && operate_find_key(c->pg, api_operate_scope(r), exchange, key, &id, e) != 0) {
        if (e->kind != ERR_NOT_FOUND)
            return -1;
        answer_not_found(r);
        return 0;
    }
    return answer_record(c, r, id, bytes_equal_str(view, "full"), e);
}

/* DONE shows the message. */
static int answer_operated(struct api_context *c, struct api_request *r, const struct operate_result *result,
                           struct err *e)
{
    char id[MESSAGE_ID_TEXT_SIZE];
    message_id_format(result->id, id);
    r->answer.id = result->id;
    switch (result->answer) {
    case OPERATE_DONE:
        c->done = true;
        return answer_record(c, r, result->id, false, e);
    case OPERATE_TOO_LATE:
        api_fail(&r->answer, API_TOO_LATE, "message %s is being delivered, or was settled already", id);
        return 0;
    case OPERATE_NOT_FOUND:
        answer_not_found(r);
        return 0;
    case OPERATE_NOT_FAILED:
        api_fail(&r->answer, API_TOO_LATE, "message %s has not failed", id);
        return 0;
    case OPERATE_KEY_TAKEN:
        api_fail(&r->answer, API_KEY_TAKEN, "the key of message %s names another message by now", id);
        return 0;
    case OPERATE_BUSY:
        api_fail(&r->answer, API_BUSY, "a gateway is publishing message %s; ask again", id);
        return 0;
    }
    return err_set(e, ERR_BUG, "an operation gave no answer");
}

int api_run_cancel(struct api_context *c, struct api_request *r, struct err *e)
{
    struct operate_request q = {.kind = OPERATE_CANCEL};
    struct operate_result result;
    struct bytes exchange, key;
    bool by_key = r->id.len == 0;
    if (api_params_check(r, by_key ? (const char *const[]){"key", "exchange", NULL}
                                   : (const char *const[]){NULL}) != 0)
        return 0;
    if (by_key ? !take_key(c, r, &exchange, &key) : !take_id(r, &q.id))
        return 0;
    const struct operate_scope *scope = api_operate_scope(r);
    int rc = by_key ? operate_cancel_key(c->pg, scope, exchange, key, &result, e)
                    : operate_message(c->pg, scope, &q, &result, e);
    return rc != 0 ? -1 : answer_operated(c, r, &result, e);
}

/* {"due_at"} or {"delay_ms"} or {"delay"}. False: answered. */
static bool read_due(struct api_request *r, const json_t *o, struct operate_due *out)
{
    struct err e = {0};
    char shown[JSON_SHOW_SIZE];
    const json_t *at = json_object_get(o, "due_at"), *ms = json_object_get(o, "delay_ms"),
                 *delay = json_object_get(o, "delay"),
                 *v = at   ? at
                      : ms ? ms
                           : delay;
    if ((at != NULL) + (ms != NULL) + (delay != NULL) != 1 || json_object_size(o) != 1) {
        api_fail(&r->answer, API_INVALID_MESSAGE,
                 "write exactly one of due_at, delay_ms and delay, and nothing else");
        return false;
    }
    out->is_delay = at == NULL;
    if (ms != NULL) {
        out->ms = json_integer_value(v);
        if (json_is_integer(v) && out->ms >= 0)
            return true;
        err_set(&e, ERR_REJECT, "allowed is a whole number of milliseconds, 0 or more");
    } else if (!json_is_string(v)) {
        err_set(&e, ERR_REJECT, "it is not a string");
    } else if ((at ? timestamp_parse(json_c_string(v), &out->ms, &e)
                   : duration_parse(json_c_string(v), &out->ms, &e)) == 0) {
        return true;
    }
    api_fail(&r->answer, API_INVALID_MESSAGE, "%s: %s: %s",
             at   ? "due_at"
             : ms ? "delay_ms"
                  : "delay",
             json_show(v, shown), e.text);
    return false;
}

int api_run_reschedule(struct api_context *c, struct api_request *r, struct err *e)
{
    struct operate_request q = {.kind = OPERATE_RESCHEDULE};
    struct operate_result result;
    int64_t clock_us;
    if (!api_takes_nothing(r) || !take_id(r, &q.id))
        return 0;
    json_t *root = api_parse_body(r->body, &r->answer);
    bool fine = root != NULL && read_due(r, root, &q.due);
    json_decref(root);
    if (!fine)
        return 0;
    /* A connection that died while idle is noticed here, where trying again is safe. */
    if (store_clock(c->pg, &clock_us, e) != 0)
        return -1;
    int rc = operate_message(c->pg, api_operate_scope(r), &q, &result, e);
    if (rc != 0 && e->kind == ERR_REJECT) {
        api_fail(&r->answer, API_INVALID_MESSAGE, "%s", e->text);
        return 0;
    }
    c->wrote = rc != 0 && e->kind == ERR_AWAY && q.due.is_delay;
    if (rc != 0)
        return -1;
    c->wake = (q.due.is_delay ? q.due.ms : q.due.ms - c->now_ms) <= c->lead_ms;
    return answer_operated(c, r, &result, e);
}

/* What takes no more than an id: of a message that failed, or that is in doubt. */
static int run_by_id(struct api_context *c, struct api_request *r, enum operate_kind kind, struct err *e)
{
    struct operate_request q = {.kind = kind};
    struct operate_result result;
    if (!api_takes_nothing(r) || !take_id(r, &q.id) || !api_body_is_empty(r))
        return 0;
    if (operate_message(c->pg, api_operate_scope(r), &q, &result, e) != 0)
        return -1;
    c->wake = kind == OPERATE_RETRY && result.answer == OPERATE_DONE;
    return answer_operated(c, r, &result, e);
}

int api_run_retry(struct api_context *c, struct api_request *r, struct err *e)
{
    return run_by_id(c, r, OPERATE_RETRY, e);
}

int api_run_fail(struct api_context *c, struct api_request *r, struct err *e)
{
    return run_by_id(c, r, OPERATE_FAIL, e);
}

/* --- all of them */

#define ROW(number, called, has, by, may, ...)                                                               \
    [API_##number] = {                                                                                       \
        .name = (called), .shape = API_SHAPE_##has, .threads = API_##by, .effect = API_##may, __VA_ARGS__},
static const struct api_operation operations[] = {API_OPERATIONS(ROW)};
#define OPERATIONS (sizeof operations / sizeof operations[0])

const struct api_operation *api_operation_of(enum api_op op)
{
    return &operations[op];
}

const struct api_operation *api_operation_find(struct bytes name, bool by_filter)
{
    const struct api_operation *found = NULL;
    for (size_t i = 0; i < OPERATIONS; i++)
        if (bytes_equal_str(name, operations[i].name) &&
            (found == NULL || operations[i].by_filter == by_filter))
            found = &operations[i];
    return found;
}

const char *api_operation_names(char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < OPERATIONS && used < size; i++)
        if (!operations[i].by_filter)
            used +=
                (size_t)snprintf(out + used, size - used, "%s%s", used > 0 ? ", " : "", operations[i].name);
    return out;
}

int api_run(struct api_context *c, struct api_request *r, struct err *e)
{
    if (r->op->run == NULL)
        return err_set(e, ERR_BUG, "%s is not done here", r->op->name);
    return r->op->run(c, r, e);
}
