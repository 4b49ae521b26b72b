/* Scheduling: makes the items of a transaction from request bodies, and answers from their results. */
#include "core/base/timestamp.h"
#include "core/message/reserved.h"
#include "gateway/ops/api_internal.h"
#include "sql/operate/lookup.h"

#include <string.h>

#define GROUP_BYTES ((size_t)1024 * 1024) /* bodies and names; then the transaction is full */
#define ARENA_MAX ((size_t)128 * 1024 * 1024)

struct api_entry {
    enum api_problem problem; /* API_OK: it has an item */
    const char *detail;       /* in the arena */
    size_t item;
};

void api_scheduler_open(struct api_scheduler *s, const struct accept_rules *rules)
{
    json_parser_init(&s->parser, rules);
    arena_init(&s->arena, ARENA_MAX);
}

void api_scheduler_close(struct api_scheduler *s)
{
    json_parser_free(&s->parser);
    arena_free(&s->arena);
}

void api_scheduler_reset(struct api_scheduler *s, int64_t now_ms, enum hold_policy hold)
{
    arena_reset(&s->arena);
    s->count = s->bytes = 0;
    s->parser.now_ms = now_ms;
    s->parser.rules.hold = hold;
}

bool api_scheduler_has_room(const struct api_scheduler *s)
{
    return s->count + API_BATCH_MAX <= API_ITEMS_MAX && s->bytes < GROUP_BYTES;
}

static void refuse_entry(struct api_scheduler *s, struct api_entry *entry, enum api_problem p,
                         const char *text)
{
    entry->problem = p;
    entry->detail = arena_strdup(&s->arena, bytes_of_str(text));
    if (entry->detail == NULL)
        entry->detail = "out of memory";
}

/* -1: out of memory. */
static int add_message(struct api_scheduler *s, const struct api_scope *scope, const json_t *value,
                       struct api_entry *entry)
{
    struct store_item *item = &s->items[s->count];
    struct err e = {0};
    char text[200];
    *item = (struct store_item){0};
    *entry = (struct api_entry){.problem = API_OK};
    if (json_message_read(&s->parser, value, &s->arena, &item->message, &e) != 0) {
        refuse_entry(s, entry, API_INVALID_MESSAGE, e.text);
        return e.kind == ERR_REJECT ? 0 : -1;
    }
    struct message *m = &item->message;
    if (api_scope_admits(scope, &s->parser.rules, m, text, sizeof text) != 0) {
        refuse_entry(s, entry, API_EXCHANGE_NOT_ALLOWED, text);
        return 0;
    }
    if (reserved_check(m, &s->parser.rules, &e) != 0) {
        refuse_entry(s, entry, API_INVALID_MESSAGE, e.text);
        return 0;
    }
    m->id = message_id_new(m->due_ms);
    entry->item = s->count++;
    s->bytes += message_size(m);
    return 0;
}

/* The list of a batch; NULL and answered when it is none. */
static const json_t *batch_list(const json_t *root, struct api_answer *a)
{
    const json_t *list = json_object_get(root, "messages");
    if (!json_is_array(list))
        api_fail(a, API_INVALID_MESSAGE, "messages: is not an array");
    else if (json_object_size(root) != 1)
        api_fail(a, API_INVALID_MESSAGE, "a batch has \"messages\" and no other field");
    else if (json_array_size(list) < 1 || json_array_size(list) > API_BATCH_MAX)
        api_fail(a, API_INVALID_MESSAGE, "messages: holds %zu: allowed are 1 to %d", json_array_size(list),
                 API_BATCH_MAX);
    else
        return list;
    return NULL;
}

static int read_entries(struct api_scheduler *s, const json_t *root, struct api_schedule *q)
{
    struct api_request *r = q->request;
    const json_t *list = NULL;
    q->batch = json_object_get(root, "messages") != NULL;
    if (q->batch && (list = batch_list(root, &r->answer)) == NULL)
        return -1;
    q->count = q->batch ? json_array_size(list) : 1;
    q->entries = arena_alloc(&s->arena, q->count * sizeof *q->entries);
    for (size_t i = 0; i < q->count; i++) {
        const json_t *value = q->batch ? json_array_get(list, i) : root;
        if (q->entries == NULL || add_message(s, r->scope, value, &q->entries[i]) != 0) {
            s->count = q->first_item;
            api_fail(&r->answer, API_OVERLOADED, "not enough memory for this request now");
            return -1;
        }
    }
    if (q->batch || q->entries[0].problem == API_OK)
        return 0;
    api_fail(&r->answer, q->entries[0].problem, "%s", q->entries[0].detail);
    return -1;
}

int api_schedule_parse(struct api_scheduler *s, struct api_request *r, struct api_schedule *out)
{
    *out = (struct api_schedule){.request = r, .first_item = s->count};
    if (!api_admits(r))
        return -1;
    json_t *root = api_parse_body(r->body, &r->answer);
    if (root == NULL)
        return -1;
    s->parser.text = r->body;
    int rc = read_entries(s, root, out);
    json_decref(root);
    out->item_count = s->count - out->first_item;
    return rc;
}

/* Why an item was not stored; API_OK: it was, or a kept one is there. */
static enum api_problem item_problem(const struct store_item *item, char *text, size_t size)
{
    char key[300], id[MESSAGE_ID_TEXT_SIZE];
    bytes_printable(item->message.key, key, sizeof key);
    message_id_format(item->existing_id, id);
    if (item->day_locked) {
        snprintf(text, size, "another session has locked the table of the day on which the message is due");
        return API_DAY_LOCKED;
    }
    if (item->result == STORE_WAITS) {
        snprintf(text, size, "key \"%s\" is locked by another session's open transaction", key);
        return API_KEY_LOCKED;
    }
    if (item->result != STORE_CONFLICT)
        return API_OK;
    bool replace = item->message.on_conflict == ON_CONFLICT_REPLACE;
    snprintf(text, size,
             replace ? "key \"%s\" names message %s, which is being delivered"
                     : "key \"%s\" names message %s already",
             key, id);
    return replace ? API_TOO_LATE : API_KEY_TAKEN;
}

static void print_record(struct api_answer *a, const struct message_record *record)
{
    struct err e = {0};
    buf_reset(&a->body);
    if (json_message_print(record, JSON_STYLE_NO_BODY, &a->body, &e) == 0)
        buf_put_str(&a->body, "\n");
    else
        api_fail(a, API_INTERNAL, "%s", e.text);
}

static int answer_kept(struct api_scheduler *s, const struct store_item *item, struct pg *pg,
                       struct api_answer *a, struct err *e)
{
    struct message_record record;
    a->status = 200;
    if (lookup_by_id(pg, item->existing_id, &s->arena, &record, e) == 0)
        print_record(a, &record);
    else if (e->kind == ERR_NOT_FOUND)
        api_fail(a, API_KEY_LOCKED, "the message that had this key has just ended");
    else
        return -1;
    return 0;
}

static int answer_single(struct api_scheduler *s, const struct api_schedule *q, struct pg *pg,
                         int64_t created_ms, struct err *e)
{
    const struct store_item *item = &s->items[q->entries[0].item];
    struct api_answer *a = &q->request->answer;
    char text[700];
    enum api_problem p = item_problem(item, text, sizeof text);
    if (p != API_OK) {
        api_fail(a, p, "%s", text);
        return 0;
    }
    if (item->result == STORE_KEPT)
        return answer_kept(s, item, pg, a, e);
    struct message_record record = {.message = item->message,
                                    .state = MESSAGE_SCHEDULED,
                                    .next_at_ms = item->message.due_ms,
                                    .created_ms = created_ms,
                                    .settled_ms = -1};
    a->status = 201;
    a->replaces = item->message.on_conflict == ON_CONFLICT_REPLACE;
    a->made = 1;
    a->id = item->message.id;
    print_record(a, &record);
    return 0;
}

static void print_stored(struct buf *out, const struct store_item *item)
{
    char id[MESSAGE_ID_TEXT_SIZE], due[40];
    if (item->result == STORE_KEPT) {
        buf_printf(out, "{\"status\":200,\"id\":\"%s\"}", message_id_format(item->existing_id, id));
        return;
    }
    buf_printf(out, "{\"status\":201,\"id\":\"%s\",\"due_at\":\"%s\",\"state\":\"%s\"}",
               message_id_format(item->message.id, id),
               timestamp_format(item->message.due_ms, due, sizeof due),
               item->result == STORE_REPLACED ? "superseded" : "scheduled");
}

static void note_made(struct api_answer *a, const struct store_item *item)
{
    a->replaces |= item->message.on_conflict == ON_CONFLICT_REPLACE;
    if (item->result != STORE_KEPT && a->made++ == 0)
        a->id = item->message.id;
}

static void answer_batch(struct api_scheduler *s, const struct api_schedule *q)
{
    struct api_answer *a = &q->request->answer;
    a->status = 200;
    a->made = 0;
    buf_reset(&a->body);
    buf_put_str(&a->body, "{\"results\":[");
    for (size_t i = 0; i < q->count; i++) {
        const struct api_entry *entry = &q->entries[i];
        char text[700];
        enum api_problem p = entry->problem;
        const char *detail = entry->detail;
        if (p == API_OK) {
            p = item_problem(&s->items[entry->item], text, sizeof text);
            detail = text;
        }
        if (i > 0)
            buf_put_str(&a->body, ",");
        if (p == API_OK) {
            note_made(a, &s->items[entry->item]);
            print_stored(&a->body, &s->items[entry->item]);
            continue;
        }
        json_t *o = api_problem_object(p, detail);
        if (json_put(o, JSON_COMPACT, &a->body) != 0)
            a->body.failed = true;
        json_decref(o);
    }
    buf_put_str(&a->body, "]}\n");
    if (a->body.failed)
        api_fail(a, API_INTERNAL, "out of memory; the messages are stored");
}

int api_schedule_answer(struct api_scheduler *s, struct api_schedule *q, struct pg *pg, int64_t created_ms,
                        bool *waits, struct err *e)
{
    *waits = !q->batch && s->items[q->entries[0].item].result == STORE_WAITS;
    if (q->batch) {
        answer_batch(s, q);
        return 0;
    }
    return answer_single(s, q, pg, created_ms, e);
}
