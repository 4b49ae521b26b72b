/* Operations on single messages. */
#include "gateway/api/api_internal.h"
#include "gateway/api/api_operation.h"

static int fail_missing(const struct api_request *r, struct err *e)
{
    char shown[80];
    if (r->id.len == 0)
        return err_set(e, ERR_NOT_FOUND, "no message has this key in this exchange");
    return err_set(e, ERR_NOT_FOUND, "no message has the id %s", bytes_printable(r->id, shown, sizeof shown));
}

/* The message as it is now. */
static int answer_record(struct api_context *c, struct api_request *r, struct message_id id, bool full,
                         struct err *e)
{
    struct message_record record;
    struct err print = {0};
    int rc = operate_show(c->pg, api_operate_scope(r), id, &c->arena, &record, e);
    r->answer.status = 200;
    r->answer.id = id;
    buf_reset(&r->answer.body);
    if (rc == 0 && json_message_print(&record, full ? JSON_STYLE_LINE : JSON_STYLE_NO_BODY, &r->answer.body,
                                      &print) != 0)
        api_fail(&r->answer, API_INTERNAL, "%s", print.text);
    else if (rc == 0)
        buf_put_str(&r->answer.body, "\n");
    else if (e->kind == ERR_NOT_FOUND)
        r->answer.explained = dead_explain(c->pg, api_operate_scope(r), id, e);
    return rc;
}

int api_message_settled(struct api_context *c, const struct api_request *r, int64_t *out_ms, struct err *e)
{
    struct message_record record = {0};
    struct arena arena;
    arena_init(&arena, API_RECORD_MAX);
    int rc = operate_show(c->pg, api_operate_scope(r), r->answer.id, &arena, &record, e);
    if (rc != 0 && e->kind == ERR_NOT_FOUND)
        rc = 0;
    *out_ms = record.settled_ms;
    arena_free(&arena);
    return rc;
}

/* Which message it is: by an id that it ever had, or by a key and an exchange. */
struct name {
    struct message_id id;
    bool by_key;
    struct bytes exchange, key;
};

static int take_name(const struct api_context *c, const struct api_request *r, struct name *out,
                     struct err *e)
{
    *out = (struct name){.by_key = r->id.len == 0,
                         .key = api_param(&r->params, "key"),
                         .exchange = api_param(&r->params, "exchange")};
    if (out->exchange.data == NULL)
        out->exchange = bytes_of_str(c->rules.delivery_exchange);
    if (!out->by_key && !message_id_parse(r->id, &out->id))
        return fail_missing(r, e);
    if (out->by_key && (out->key.len < 1 || out->key.len > MESSAGE_NAME_MAX))
        return err_set(e, ERR_REJECT, "name a message by its id in the address, or by key= (1 to %d bytes)",
                       MESSAGE_NAME_MAX);
    return 0;
}

int api_show(struct api_context *c, struct api_request *r, struct err *e)
{
    struct name name;
    struct bytes view = api_param(&r->params, "view");
    if (view.data != NULL && !bytes_equal_str(view, "full") && !bytes_equal_str(view, "basic"))
        return err_set(e, ERR_REJECT, "view: allowed are basic and full");
    if (take_name(c, r, &name, e) != 0)
        return -1;
    if (name.by_key &&
        operate_find_key(c->pg, api_operate_scope(r), name.exchange, name.key, &name.id, e) != 0)
        return e->kind == ERR_NOT_FOUND ? fail_missing(r, e) : -1;
    return answer_record(c, r, name.id, bytes_equal_str(view, "full"), e);
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
        return fail_missing(r, e);
    case OPERATE_NOT_FAILED:
        api_fail(&r->answer, API_TOO_LATE, "message %s has not failed, and waits for no other attempt", id);
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

int api_cancel(struct api_context *c, struct api_request *r, struct err *e)
{
    struct operate_result result;
    struct name name;
    const struct operate_scope *scope = api_operate_scope(r);
    if (take_name(c, r, &name, e) != 0)
        return -1;
    const struct operate_request q = {.kind = OPERATE_CANCEL, .id = name.id};
    int rc = name.by_key ? operate_cancel_key(c->pg, scope, name.exchange, name.key, &result, e)
                         : operate_message(c->pg, scope, &q, &result, e);
    return rc != 0 ? -1 : answer_operated(c, r, &result, e);
}

/* {"due_at"} or {"delay_ms"} or {"delay"} */
static int read_due(const json_t *o, struct operate_due *out, struct err *e)
{
    static const char *const fields[] = {"due_at", "delay_ms", "delay"};
    for (size_t i = 0; i < 3 && json_object_size(o) == 1; i++) {
        const json_t *v = json_object_get(o, fields[i]);
        out->is_delay = i > 0;
        if (v != NULL)
            return json_due_read(fields[i], v, &out->ms, e);
    }
    return err_set(e, ERR_REJECT, "write exactly one of due_at, delay_ms and delay, and nothing else");
}

int api_reschedule(struct api_context *c, struct api_request *r, struct err *e)
{
    struct operate_request q = {.kind = OPERATE_RESCHEDULE};
    struct operate_result result;
    struct name name;
    if (take_name(c, r, &name, e) != 0 || read_due(c->body, &q.due, e) != 0)
        return -1;
    q.id = name.id;
    if (operate_message(c->pg, api_operate_scope(r), &q, &result, e) != 0)
        return -1;
    c->wake = (q.due.is_delay ? q.due.ms : q.due.ms - c->now_ms) <= c->lead_ms;
    return answer_operated(c, r, &result, e);
}

/* What takes no more than an id: of a message that failed, or that is in doubt. */
int api_retry(struct api_context *c, struct api_request *r, struct err *e)
{
    struct operate_request q = {.kind = (enum operate_kind)r->op->kind};
    struct operate_result result;
    struct name name;
    if (take_name(c, r, &name, e) != 0)
        return -1;
    q.id = name.id;
    if (operate_message(c->pg, api_operate_scope(r), &q, &result, e) != 0)
        return -1;
    c->wake = q.kind == OPERATE_RETRY && result.answer == OPERATE_DONE;
    return answer_operated(c, r, &result, e);
}
