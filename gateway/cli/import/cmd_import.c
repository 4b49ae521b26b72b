/* postdate import: what waits in a delayed-message plugin is taken over, with proof. */
#include "amqp/inspect/inspect.h"
#include "core/base/base64.h"
#include "core/base/clock.h"
#include "core/base/names.h"
#include "core/base/random.h"
#include "core/message/reserved.h"
#include "gateway/cli/command.h"
#include "gateway/cli/import/import_internal.h"
#include "gateway/cli/rabbitmqctl.h"
#include "gateway/json/json_memory.h"
#include "plugin_embedded.h"
#include "sql/admin/settings.h"
#include "sql/pipeline/store.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IMPORT_BATCH_MAX 4000 /* their ids are an argument of a program: at most 128 KiB */

/* --- The import from one node. For each batch: stored asleep → taken out of the plugin → awake. Taking a
 * batch and reading the next one is one call. */

/* What was read, and is being stored. */
struct batch {
    struct import_answer answer;
    struct import_row *rows; /* those that can be stored; as many as there are entries */
    struct message_id *ids;
    size_t count;
};

struct import_call {
    bool is_dry; /* nothing is changed */
    bool begins; /* the token is set; what an earlier run has taken is told; what waits is counted */
    bool ends;   /* token and marks are removed */

    int64_t seq; /* the batch of which entries are taken; 0: nothing is */
    const struct message_id *take;
    size_t take_count;

    const struct message_id *look; /* which of these does it still have? */
    size_t look_count;
    int64_t look_from_ms, look_to_ms;

    enum import_reading reading;
    int64_t from_ms; /* what is due after this */
    int64_t next_seq, batch, bytes;
    bool with_bodies;
};

#define RUN_MS 300000
#define OUT_MAX ((size_t)384 * 1024 * 1024) /* a batch, and one message of any size */

static void import_answer_init(struct import_answer *a)
{
    *a = (struct import_answer){0};
    arena_init(&a->arena, OUT_MAX);
    buf_init(&a->out, OUT_MAX);
    buf_init(&a->entry_list, OUT_MAX);
    buf_init(&a->survey_list, OUT_MAX);
}

static void answer_reset(struct import_answer *a)
{
    *a = (struct import_answer){
        .arena = a->arena, .out = a->out, .entry_list = a->entry_list, .survey_list = a->survey_list};
    arena_reset(&a->arena);
    buf_reset(&a->out);
    buf_reset(&a->entry_list);
    buf_reset(&a->survey_list);
}

static int compare_ids(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct message_id));
}

static bool import_ids_has(const struct import_ids *list, struct message_id id)
{
    return list->count > 0 && bsearch(&id, list->ids, list->count, sizeof id, compare_ids) != NULL;
}

/* --- what is asked */
static void set_flag(struct rabbitmqctl *r, const char *name, bool v)
{
    rabbitmqctl_set(r, name, v ? "true" : "false");
}

/* They have the same names in plugin.erl. */
static void set_variables(struct rabbitmqctl *r, const struct import_run *run, const struct import_call *c)
{
    rabbitmqctl_set(r, "Owner", "<<\"%s\">>", run->owner);
    rabbitmqctl_set(r, "Run", "<<\"%s\">>", run->run);
    set_flag(r, "Begin", c->begins);
    set_flag(r, "Is_dry", c->is_dry);
    set_flag(r, "Is_end", c->ends);
    rabbitmqctl_set(r, "Seq", "%" PRId64, c->seq);
    rabbitmqctl_set(r, "Next_seq", "%" PRId64, c->next_seq);
    if (c->reading == IMPORT_READ_NOTHING)
        rabbitmqctl_set(r, "Read", "none");
    else
        rabbitmqctl_set(r, "Read", c->reading == IMPORT_READ_LOST ? "{lost, %" PRId64 "}" : "%" PRId64,
                        c->from_ms);
    rabbitmqctl_set(r, "Batch", "%" PRId64, c->batch);
    rabbitmqctl_set(r, "Limit", "%" PRId64, c->bytes);
    rabbitmqctl_set(r, "Margin", "%" PRId64, run->order->margin_ms);
    set_flag(r, "Bodies", c->with_bodies);
    rabbitmqctl_set(r, "Body_max", "%zu", run->rules.max_body);
    rabbitmqctl_set_bytes(r, "Vhost", bytes_of_str(run->vhost));
    rabbitmqctl_set_bytes(r, "Own", bytes_of_str(broker_names.delayed));
    rabbitmqctl_set_bytes(r, "Take", bytes_of(c->take, c->take_count * sizeof *c->take));
    rabbitmqctl_set_bytes(r, "Look", bytes_of(c->look, c->look_count * sizeof *c->look));
    rabbitmqctl_set(r, "Look_from", "%" PRId64, c->look_from_ms);
    rabbitmqctl_set(r, "Look_to", "%" PRId64, c->look_to_ms);
}

/* --- what is answered: lines of JSON. An entry is one with an id, a count of the survey one with an hour;
 * what the others say belongs together. */

/* Base64. */
static bool take_bytes(struct arena *a, const json_t *text, struct bytes *out)
{
    return json_is_string(text) &&
           base64_decode(bytes_of(json_string_value(text), json_string_length(text)), a, out) &&
           (out->data || out->len == 0);
}

/* What is not there is none. */
static bool take_ids(struct import_answer *a, const json_t *text, struct import_ids *out)
{
    struct bytes v = {0};
    if (text != NULL && (!take_bytes(&a->arena, text, &v) || v.len % sizeof *out->ids != 0))
        return false;
    *out = (struct import_ids){(const void *)v.data, v.len / sizeof *out->ids};
    return true;
}

/* One more at the end of a list, without anything in it; NULL: out of memory. */
static void *put_one(struct buf *list, size_t size)
{
    static const uint8_t nothing[sizeof(struct import_entry) + sizeof(struct import_survey)];
    buf_put(list, nothing, size);
    return list->failed ? NULL : list->data + list->len - size;
}

static int64_t number_of(const json_t *line, const char *name)
{
    int64_t n = json_integer_value(json_object_get(line, name));
    return n > 0 ? n : 0;
}

static bool take_entry(struct import_answer *a, const json_t *line)
{
    const json_t *keys = json_object_get(line, "keys"), *body = json_object_get(line, "body"),
                 *unknown = json_object_get(line, "unknown");
    struct import_entry *m = put_one(&a->entry_list, sizeof *m);
    struct bytes id, why;
    if (m == NULL || !take_bytes(&a->arena, json_object_get(line, "id"), &id) || id.len != sizeof m->id ||
        !take_bytes(&a->arena, json_object_get(line, "exchange"), &m->exchange))
        return false;
    memcpy(&m->id, id.data, sizeof m->id);
    m->due_ms = number_of(line, "due");
    if (unknown != NULL)
        return take_bytes(&a->arena, unknown, &why) && (m->unknown = arena_strdup(&a->arena, why)) != NULL;
    m->size = (size_t)number_of(line, "size");
    m->body.len = m->size;
    m->key_count = json_array_size(keys);
    m->keys = arena_alloc(&a->arena, (m->key_count + 1) * sizeof *m->keys);
    for (size_t i = 0; i < m->key_count; i++)
        if (m->keys == NULL || !take_bytes(&a->arena, json_array_get(keys, i), &m->keys[i]))
            return false;
    return m->key_count > 0 && take_bytes(&a->arena, json_object_get(line, "properties"), &m->properties) &&
           (json_is_null(body) || take_bytes(&a->arena, body, &m->body));
}

static bool take_survey(struct import_answer *a, const json_t *line)
{
    struct import_survey *s = put_one(&a->survey_list, sizeof *s);
    if (s == NULL)
        return false;
    *s = (struct import_survey){.hour = number_of(line, "hour"),
                                .soon = json_is_true(json_object_get(line, "soon")),
                                .count = number_of(line, "count")};
    return take_bytes(&a->arena, json_object_get(line, "exchange"), &s->exchange);
}

static bool take_text(const json_t *text, char *out, size_t size)
{
    const char *value = json_string_value(text);
    return text == NULL || (value != NULL && (size_t)snprintf(out, size, "%s", value) < size);
}

/* False: plugin.erl says no such thing. */
static bool take_facts(struct import_answer *a, const json_t *facts)
{
    const char *next = json_string_value(json_object_get(facts, "next"));
    const json_t *nodes = json_object_get(facts, "nodes");
    a->now_ms = number_of(facts, "now");
    a->has_table = !json_is_false(json_object_get(facts, "table"));
    a->is_down = json_is_true(json_object_get(facts, "down"));
    a->gone = json_is_true(json_object_get(facts, "gone"));
    a->fenced = json_is_true(json_object_get(facts, "fenced"));
    a->next_ms = number_of(facts, "next_ms");
    a->next = next == NULL || strcmp(next, "done") == 0 ? IMPORT_READ_NOTHING
              : strcmp(next, "lost") == 0               ? IMPORT_READ_LOST
                                                        : IMPORT_READ_FROM;
    for (size_t i = 0; i < json_array_size(nodes) && i < IMPORT_NODES_MAX; i++, a->node_count++)
        if (!take_text(json_array_get(nodes, i), a->nodes[i], IMPORT_NODE_SIZE))
            return false;
    return take_text(json_object_get(facts, "node"), a->node, sizeof a->node) &&
           take_text(json_object_get(facts, "before"), a->before, sizeof a->before) &&
           take_ids(a, json_object_get(facts, "mark"), &a->mark) &&
           take_ids(a, json_object_get(facts, "taken"), &a->taken) &&
           take_ids(a, json_object_get(facts, "present"), &a->present) &&
           json_is_true(json_object_get(facts, "end"));
}

/* Of one without its end, or with a part that there was no memory for, nothing is believed. */
static bool read_answer(struct import_answer *a)
{
    struct json_memory_scope outer = json_memory_begin();
    struct bytes rest = buf_bytes(&a->out);
    json_t *facts = json_object();
    const uint8_t *end;
    bool is_ours = true;
    while (is_ours && !json_object_get(facts, "end") && rest.len > 0 &&
           (end = memchr(rest.data, '\n', rest.len)) != NULL) {
        size_t len = (size_t)(end - rest.data);
        json_t *line = json_loadb((const char *)rest.data, len, 0, NULL);
        is_ours = json_object_get(line, "id")     ? take_entry(a, line)
                  : json_object_get(line, "hour") ? take_survey(a, line)
                                                  : json_object_update(facts, line) == 0;
        json_decref(line);
        rest = bytes_of(end + 1, rest.len - len - 1);
    }
    is_ours = is_ours && take_facts(a, facts);
    json_decref(facts);
    return !json_memory_end(outer) && is_ours;
}

static int answer_fail(const struct import_run *run, const struct import_answer *a, struct err *e)
{
    char first[200];
    const char *node = run->node_asked != NULL ? run->node_asked : "the node that rabbitmqctl reaches";
    if (a->out.failed)
        return err_set(e, ERR_BUG,
                       "%s: the output of rabbitmqctl is too large (allowed: %zu MiB): use a smaller --batch",
                       node, OUT_MAX >> 20);
    size_t shown = a->out.len < 120 ? a->out.len : 120;
    return err_set(e, ERR_AWAY, "%s: unexpected output of rabbitmqctl: %s", node,
                   bytes_printable(bytes_of(a->out.data, shown), first, sizeof first));
}

/* ERR_AWAY: rabbitmqctl says why not, or its answer is not whole. What was asked may be done, or be done
 * later: the next run finds out. ERR_BUSY: another run has begun. */
static int import_ask(const struct import_run *run, const struct import_call *call, struct import_answer *a,
                      struct err *e)
{
    struct rabbitmqctl r;
    answer_reset(a);
    rabbitmqctl_init(&r);
    r.path = run->order->rabbitmqctl;
    r.node = run->node_asked;
    r.timeout_ms = RUN_MS;
    set_variables(&r, run, call);
    int rc = rabbitmqctl_eval(&r, plugin_erl, &a->out, e);
    rabbitmqctl_free(&r);
    if (rc == 0 && !read_answer(a))
        rc = answer_fail(run, a, e);
    a->entries = (void *)a->entry_list.data;
    a->count = a->entry_list.len / sizeof *a->entries;
    a->surveys = (void *)a->survey_list.data;
    a->survey_count = a->survey_list.len / sizeof *a->surveys;
    if (rc == 0 && a->is_down)
        rc = err_set(
            e, ERR_AWAY,
            "node %s is starting or stopped, or its Mnesia is not running: repeat the command when it is up",
            a->node);
    if (rc == 0 && a->fenced)
        rc = err_set(e, ERR_BUSY, "another import from node %s has started: this one exits", run->node);
    return rc;
}

/* --- What a run finds of one that came to no end: rows that are asleep, and the mark of what was taken.
 *
 * The mark has precedence: what is in it the plugin has no more, so it is woken. Of the other rows the plugin
 * tells which it still has: these are dropped, and read again. What it has not, it has delivered, or another
 * Postdate has taken it. But if its table is not the one that they were read from, entries and mark went with
 * that, and they are woken: one that comes twice is not lost. */

#define PATIENCE 7    /* waits of 0.1 s, 0.2 s … 6.4 s */
#define READ_ROWS 200 /* at once: bodies are in memory */
#define READ_MEMORY ((size_t)1024 * 1024 * 1024)

/* import_drop of this run's. */
static int import_drop_ids(const struct import_run *run, const struct message_id *ids, size_t count,
                           struct err *e)
{
    return count > 0 && import_forget(run->cli->pg, &run->place, false, ids, count, e) < 0 ? -1 : 0;
}

static size_t move_asleep_first(struct import_row *rows, size_t count)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        if (rows[i].awake)
            continue;
        struct import_row row = rows[n];
        rows[n++] = rows[i];
        rows[i] = row;
    }
    return n;
}

/* Makes rows messages, all of them; waits a while for what is in the way. */
static int import_wake_all(struct import_run *run, struct import_row *rows, size_t count, struct err *e)
{
    for (int i = 0; count > 0; i++) {
        int rc = import_wake(run->cli->pg, run->hold, rows, count, e);
        if (rc != 0 && (e->kind != ERR_BUSY || pg_is_broken(run->cli->pg)))
            return -1;
        cli_changed(run->cli, 0);
        count = rc == 0 ? move_asleep_first(rows, count) : count;
        if (count > 0 && i == PATIENCE)
            return err_set(e, ERR_BUSY,
                           "%zu messages are in the database, but not scheduled yet: another session has "
                           "locked the table of their day (postdate doctor reports which). They are safe: "
                           "repeat the command",
                           count);
        if (count > 0)
            clock_nap_ms(100L << i);
    }
    return 0;
}

static int wake_some(struct import_run *run, const struct message_id *ids, size_t count, struct arena *a,
                     struct err *e)
{
    struct import_row rows[READ_ROWS];
    int n = import_read(run->cli->pg, ids, count, a, rows, e);
    if (n < 0 || import_wake_all(run, rows, (size_t)n, e) != 0)
        return -1;
    run->found += n;
    cli_changed(run->cli, n);
    return 0;
}

static int wake_ids(struct import_run *run, const struct message_id *ids, size_t count, struct err *e)
{
    struct arena a;
    int rc = 0;
    arena_init(&a, READ_MEMORY);
    for (size_t i = 0; rc == 0 && i < count; i += READ_ROWS) {
        arena_reset(&a);
        rc = wake_some(run, ids + i, count - i < READ_ROWS ? count - i : READ_ROWS, &a, e);
    }
    arena_free(&a);
    return rc;
}

/* Rows of an earlier run that are in no mark. */
static int resolve(struct import_run *run, struct import_row *rows, size_t count, struct import_answer *a,
                   struct err *e)
{
    struct message_id ids[IMPORT_BATCH_MAX], alone[IMPORT_BATCH_MAX];
    size_t dropped = 0, woken = 0;
    struct import_call call = {
        .look = ids, .look_count = count, .look_from_ms = rows[0].due_ms, .look_to_ms = rows[0].due_ms};
    for (size_t i = 0; i < count; i++) {
        ids[i] = rows[i].id;
        call.look_from_ms = rows[i].due_ms < call.look_from_ms ? rows[i].due_ms : call.look_from_ms;
        call.look_to_ms = rows[i].due_ms > call.look_to_ms ? rows[i].due_ms : call.look_to_ms;
    }
    if (import_ask(run, &call, a, e) != 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        bool is_there = import_ids_has(&a->present, rows[i].id);
        if (!is_there && (!rows[i].same_table || !a->has_table)) {
            alone[woken++] = rows[i].id;
            continue;
        }
        run->delivered += !is_there;
        ids[dropped++] = rows[i].id;
    }
    if (import_drop_ids(run, ids, dropped, e) != 0)
        return -1;
    return wake_ids(run, alone, woken, e);
}

/* What an earlier run has left behind, asleep or taken. `a` is the answer to the call that began this run. */
static int import_resume(struct import_run *run, struct import_answer *a, struct err *e)
{
    struct import_row *rows = calloc(IMPORT_BATCH_MAX, sizeof *rows);
    if (rows == NULL)
        return err_set(e, ERR_BUG, "out of memory");
    int n, rc = wake_ids(run, a->mark.ids, a->mark.count, e);
    while (rc == 0 && (n = import_asleep(run->cli->pg, &run->place, rows, IMPORT_BATCH_MAX, e)) != 0)
        rc = n > 0 ? resolve(run, rows, (size_t)n, a, e) : -1;
    free(rows);
    if (rc == 0 && run->found > 0)
        cli_say("stored %lld messages that an earlier run had removed from the plugin",
                (long long)run->found);
    if (rc == 0 && run->delivered > 0)
        cli_say("the plugin has delivered %lld messages that an earlier run had read",
                (long long)run->delivered);
    return rc;
}

#define BATCH_BYTES (24 * 1024 * 1024)
#define DRY_BATCH 50000
#define WAKE_MS 1500 /* what is due sooner than that a sleeping gateway may not expect */

static volatile int import_interrupted;

static void batch_init(struct batch *b)
{
    *b = (struct batch){0};
    import_answer_init(&b->answer);
}

static void batch_free(struct batch *b)
{
    arena_free(&b->answer.arena);
    buf_free(&b->answer.out);
    buf_free(&b->answer.entry_list);
    buf_free(&b->answer.survey_list);
    free(b->rows);
    free(b->ids);
}

/* Makes rows of the entries that RabbitMQ has read, and counts those that cannot be imported. */
static int make_rows(struct import_run *run, struct batch *b, struct err *e)
{
    struct import_answer *a = &b->answer;
    free(b->rows);
    free(b->ids);
    b->count = 0;
    b->rows = calloc(a->count + 1, sizeof *b->rows);
    b->ids = calloc(a->count + 1, sizeof *b->ids);
    if (b->rows == NULL || b->ids == NULL)
        return err_set(e, ERR_BUG, "out of memory");
    for (size_t i = 0; i < a->count; i++) {
        const struct import_entry *m = &a->entries[i];
        struct import_count *c = import_count_of(run, m->exchange);
        if (c == NULL)
            return err_set(e, ERR_REJECT, "more than %d exchanges have waiting messages",
                           IMPORT_EXCHANGES_MAX);
        c->read++;
        run->done++;
        if (import_message(run, m, a->now_ms, &a->arena, &b->rows[b->count], e) == 0)
            b->ids[b->count++] = m->id;
        else if (e->kind == ERR_REJECT)
            import_count_refusal(run, m->exchange, e->text);
        else
            return -1;
    }
    progress_update(&run->progress, run->done, run->done);
    return 0;
}

/* Afterwards, rows of removed entries are awake; the other entries stay with the plugin, or it has delivered
 * them. */
static int finish_batch(struct import_run *run, struct batch *b, const struct import_ids *taken,
                        struct err *e)
{
    size_t woken = 0, left = 0;
    for (size_t i = 0; i < b->count; i++) {
        struct import_count *c = import_count_of(run, b->rows[i].source);
        if (import_ids_has(taken, b->rows[i].id)) {
            b->rows[woken++] = b->rows[i];
            c->stored++;
        } else {
            b->ids[left++] = b->rows[i].id;
            c->left++;
        }
    }
    if (import_wake_all(run, b->rows, woken, e) != 0)
        return -1;
    for (size_t i = 0; i < woken; i++)
        run->known += b->rows[i].known;
    cli_changed(run->cli, (int64_t)woken);
    b->count = 0;
    if (import_drop_ids(run, b->ids, left, e) != 0)
        return -1;
    if (woken > 0)
        store_wake(run->cli->pg);
    return 0;
}

/* The next call: it takes what is asleep and reads on. */
static struct import_call next_call(struct import_run *run, const struct batch *asleep,
                                    enum import_reading reading, int64_t from_ms)
{
    const struct import_order *o = run->order;
    const bool slow = o->rate > 0 && o->rate < o->batch;
    const int64_t seq = run->seq++;
    return (struct import_call){
        .is_dry = o->dry_run,
        .seq = asleep->count > 0 ? seq : 0,
        .take = asleep->ids,
        .take_count = asleep->count,
        .next_seq = run->seq,
        .reading = reading,
        .from_ms = from_ms,
        .bytes = BATCH_BYTES,
        .with_bodies = !o->dry_run,
        .batch = o->dry_run ? DRY_BATCH
                 : slow     ? o->rate
                            : o->batch, /* slow: of a second */
    };
}

static int gone(const struct import_run *run, struct batch *asleep, struct err *e)
{
    if (import_drop_ids(run, asleep->ids, asleep->count, e) != 0)
        return -1;
    asleep->count = 0;
    return err_set(e, ERR_AWAY, "node %s was restarted during the import: repeat the command to continue",
                   run->node);
}

/* One call, and what follows from it. `asleep` was read before, `next` is read now. */
static int step(struct import_run *run, struct batch *asleep, struct batch *next, struct import_call *call,
                struct err *e)
{
    if (import_ask(run, call, &next->answer, e) != 0)
        return -1;
    if (!next->answer.has_table)
        return err_set(e, ERR_AWAY, "node %s no longer has the table of the plugin", run->node);
    if (next->answer.gone)
        return gone(run, asleep, e);
    if (asleep->count > 0 && finish_batch(run, asleep, &next->answer.taken, e) != 0)
        return -1;
    if (make_rows(run, next, e) != 0)
        return -1;
    if (run->order->dry_run) {
        for (size_t i = 0; i < next->count; i++)
            import_count_of(run, next->rows[i].source)->stored++;
        next->count = 0;
        return 0;
    }
    if (next->count == 0)
        return 0;
    return import_stage(run->cli->pg, &run->place, next->rows, next->count, e);
}

static int end_run(struct import_run *run, struct batch *b, struct err *e)
{
    const struct import_call call = {.ends = true};
    return import_ask(run, &call, &b->answer, e);
}

static int read_all(struct import_run *run, struct batch b[2], struct err *e)
{
    enum import_reading reading = IMPORT_READ_FROM;
    int64_t from_ms = 0;
    struct batch *asleep = &b[0], *next = &b[1];
    while (reading != IMPORT_READ_NOTHING || asleep->count > 0) {
        if (import_interrupted) {
            /* Nothing is asleep, and the plugin's table is as if this run had never been. */
            struct err ignored;
            if (import_drop_ids(run, asleep->ids, asleep->count, e) != 0)
                return -1;
            asleep->count = 0;
            if (!run->order->dry_run)
                (void)end_run(run, asleep, &ignored);
            return err_set(e, ERR_STOPPING, "interrupted: repeat the command to continue");
        }
        struct import_call call = next_call(run, asleep, reading, from_ms);
        if (step(run, asleep, next, &call, e) != 0)
            return -1;
        reading = next->answer.next;
        from_ms = next->answer.next_ms;
        struct batch *free_one = asleep;
        asleep = next;
        next = free_one;
        /* So many a second, from the beginning on. */
        while (run->order->rate > 0 && !import_interrupted &&
               (double)run->done > progress_seconds(&run->progress) * (double)run->order->rate)
            clock_nap_ms(50);
    }
    return run->order->dry_run ? 0 : end_run(run, next, e);
}

static int check_mappings(const struct import_run *run, struct err *e)
{
    char name[120];
    for (size_t i = 0; i < run->count_count; i++)
        if (!run->counts[i].mapped && !run->order->dry_run)
            return err_set(
                e, ERR_USAGE,
                "%lld messages wait in exchange \"%s\", which has no target: add --exchange %s=NEW, where "
                "NEW is an "
                "ordinary exchange with the same bindings (the old exchange would delay them again)",
                (long long)run->counts[i].waiting, bytes_printable(run->counts[i].from, name, sizeof name),
                name);
    return 0;
}

/* Looks first, and begins when nothing is wrong. */
static int begin_run(struct import_run *run, struct import_answer *a, FILE *proof, struct err *e)
{
    struct import_call call = {.begins = true, .is_dry = true};
    if (import_ask(run, &call, a, e) != 0)
        return -1;
    snprintf(run->node, sizeof run->node, "%s", a->node);
    run->place = (struct import_place){.node = bytes_of_str(run->node), .run = bytes_of_str(run->run)};
    for (size_t i = 0; run->order->node_count == 0 && i < a->node_count; i++)
        if (strcmp(a->nodes[i], run->node) != 0)
            cli_say("node %s may have waiting messages, too: import them with --node %s", a->nodes[i],
                    a->nodes[i]);
    if (import_count_survey(run, a, e) != 0 || check_mappings(run, e) != 0)
        return -1;
    if (run->order->dry_run) {
        import_count_print_hours(run, a);
        return 0;
    }
    int alone = import_be_alone(run->cli->pg, &run->place, e);
    if (alone <= 0)
        return alone < 0 ? -1 : err_set(e, ERR_BUSY, "another import from node %s is running", run->node);
    call.is_dry = false;
    if (import_proof_settle(run, proof, e) != 0 || import_ask(run, &call, a, e) != 0)
        return -1;
    snprintf(run->before, sizeof run->before, "%s", a->before);
    run->place.before = bytes_of_str(run->before);
    return import_resume(run, a, e);
}

/* One node, from its first call to its proof. 0: all that was read is stored or left; 1: some were refused;
 * -1: error. */
static int import_node(struct import_run *run, FILE *proof, struct err *e)
{
    struct batch b[2];
    batch_init(&b[0]);
    batch_init(&b[1]);
    int rc = begin_run(run, &b[0].answer, proof, e);
    bool has_table = b[0].answer.has_table;
    if (rc == 0 && !has_table)
        cli_say("node %s has no table of the plugin: no messages wait there", run->node);
    else if (rc == 0)
        cli_say("node %s: %lld messages of the plugin are due after the margin", run->node,
                (long long)run->total);
    progress_start(&run->progress, run->total);
    run->progress.unit = "messages";
    if (rc == 0 && has_table)
        rc = read_all(run, b, e);
    progress_clear(&run->progress);
    if (run->known > 0)
        cli_say(
            "an earlier import had stored %lld of the messages, and the plugin had them again (was its table "
            "restored from a backup?): they were only removed from the plugin",
            (long long)run->known);
    if (rc == 0 && !run->order->dry_run)
        rc = import_proof_write(run, proof, e);
    batch_free(&b[0]);
    batch_free(&b[1]);
    return rc;
}

/* --- postdate import: what waits in a delayed-message plugin is taken over, with proof. */

#define BROKER_MS 10000
#define MARGIN_MS 60000

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    import_interrupted = 1;
}

/* "orders=orders.due" */
static int take_exchange(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    struct import_order *order = at;
    const char *sign = strchr(text, '=');
    if (sign == NULL || sign == text)
        return cli_usage(cli, "--%s: \"%s\" is not OLD=NEW, such as orders=orders.due", o->name, text);
    if (order->mapping_count == IMPORT_EXCHANGES_MAX)
        return cli_usage(cli, "--%s is given more than %d times", o->name, IMPORT_EXCHANGES_MAX);
    const struct import_mapping m = {bytes_of(text, (size_t)(sign - text)), bytes_of_str(sign + 1)};
    if (import_mapping_of(order, m.from) != NULL)
        return cli_usage(cli, "--%s: \"%.*s\" is given twice", o->name, (int)m.from.len, text);
    if (m.to.len > MESSAGE_NAME_MAX || !bytes_is_text(m.to))
        return cli_usage(cli, "--%s: \"%s\" is not a valid name of an exchange (at most 255 bytes of UTF-8)",
                         o->name, sign + 1);
    order->mappings[order->mapping_count++] = m;
    return 0;
}

static int take_node(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    struct import_order *order = at;
    if (order->node_count == IMPORT_NODES_MAX || text[0] == '\0' || strlen(text) >= IMPORT_NODE_SIZE)
        return cli_usage(cli, "--%s: \"%s\" is not a name of a node, or more than %d are given", o->name,
                         text, IMPORT_NODES_MAX);
    order->nodes[order->node_count++] = text;
    return 0;
}

/* Each must be one to which Postdate may deliver, and be there. */
static int check_targets(struct import_run *run, struct err *e)
{
    const struct import_order *o = run->order;
    struct broker *b =
        o->mapping_count > 0 ? cli_broker_open(&run->cli->config, "postdate import", BROKER_MS, e) : NULL;
    char name[MESSAGE_NAME_MAX + 1];
    bool exists = true;
    int rc = b != NULL || o->mapping_count == 0 ? 0 : -1;
    for (size_t i = 0; rc == 0 && i < o->mapping_count; i++) {
        const struct bytes to = o->mappings[i].to;
        snprintf(name, sizeof name, "%.*s", (int)to.len, (const char *)to.data);
        if (!bytes_equal_str(to, run->rules.delivery_exchange) && !accept_exchange_allowed(&run->rules, to))
            rc = err_set(e, ERR_CONFIG, "exchange \"%s\" is not in delivery.allow", name);
        else if (reserved_exchange(to, &run->rules))
            rc = err_set(e, ERR_CONFIG, "exchange \"%s\" is one of Postdate's own", name);
        else if (to.len > 0 && (rc = inspect_exchange(b, name, &exists, e)) == 0 && !exists)
            rc = err_set(e, ERR_NOT_FOUND,
                         "exchange \"%s\" does not exist: declare it, and bind the queues to it", name);
    }
    broker_close(b);
    return rc;
}

static void make_run(struct import_run *run)
{
    uint8_t bytes[(IMPORT_RUN_SIZE - 1) / 2];
    random_fill(bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(run->run + 2 * i, 3, "%02x", bytes[i]);
}

static int prepare(struct import_run *run, struct err *e)
{
    const struct import_order *o = run->order;
    const struct hold_request no_wish = {.is_named = true};
    run->rules = config_accept_rules(&run->cli->config);
    if (settings_hold_policy(run->cli->pg, &run->rules.hold, e) != 0 ||
        import_owner(run->cli->pg, run->owner, e) != 0)
        return -1;
    run->hold = hold_policy_decide(run->rules.hold, &no_wish);
    if (o->vhost != NULL)
        snprintf(run->vhost, sizeof run->vhost, "%s", o->vhost);
    else if (broker_url_vhost(run->cli->config.amqp.url, run->vhost, sizeof run->vhost, e) != 0)
        return -1;
    return check_targets(run, e);
}

/* 0, 1: some were refused, or the code of an error. */
static int import_one(struct import_run *run, FILE *proof)
{
    struct err e;
    make_run(run);
    int rc = import_node(run, proof, &e);
    int64_t refused = 0;
    for (size_t i = 0; i < run->count_count; i++)
        refused += run->counts[i].refused;
    import_count_print_reasons(run);
    if (rc == 0)
        import_count_print(run);
    int code = rc != 0 ? cli_fail(run->cli, &e) : refused > 0;
    return code;
}

static int import_nodes(struct cli *cli, const struct import_order *o, struct import_run *run, FILE *proof)
{
    struct err e;
    const struct import_run empty = {.cli = cli, .order = o};
    int worst = 0;
    for (size_t i = 0; i < (o->node_count > 0 ? o->node_count : 1) && !import_interrupted; i++) {
        *run = empty;
        run->node_asked = o->node_count > 0 ? o->nodes[i] : NULL;
        int code = prepare(run, &e) != 0 ? cli_fail(cli, &e) : import_one(run, proof);
        worst = code > worst ? code : worst;
        if (run->proof_failed) /* the next run cuts that part off, if there is none behind it */
            break;
    }
    return worst;
}

static int run_plugin(struct cli *cli, void *order)
{
    const struct import_order *o = order;
    struct sigaction action = {.sa_handler = on_interrupt};
    struct import_run *run = calloc(1, sizeof *run);
    if (run == NULL)
        return cli_no_memory(cli);
    struct err e;
    FILE *proof = o->proof != NULL ? import_proof_open(o->proof, &e) : NULL;
    int code = o->proof != NULL && proof == NULL ? cli_fail(cli, &e) : 0;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (code == 0)
        code = import_nodes(cli, o, run, proof);
    if (proof != NULL && fclose(proof) != 0 && code == 0) {
        err_set(&e, ERR_LIMIT, "cannot write the proof: %s", strerror(errno));
        code = cli_fail(cli, &e);
    }
    free(run);
    return code;
}

static int run_verify(struct cli *cli, void *order)
{
    (void)order;
    return import_proof_verify(cli, cli->words[0]);
}

static const struct cli_option options[] = {
    {"exchange", "OLD=NEW",
     "deliver waiting messages of the plugin's exchange OLD to NEW; repeat" CLI_HELP_LINE
     "it for each exchange of the plugin",
     take_exchange, .of = "plugin"},
    {"dry-run", NULL,
     "change nothing: print counts by exchange and hour, and why messages" CLI_HELP_LINE "cannot be imported",
     CLI_TAKE(flag, import_order, dry_run), .of = "plugin"},
    {"proof", "FILE", "append a line of JSON for each stored message, and counts",
     CLI_TAKE(text, import_order, proof), .of = "plugin", .words = CLI_FILE},
    {"node", "NODE", "node of RabbitMQ; repeatable (default: the one that rabbitmqctl reaches)", take_node,
     .of = "plugin"},
    {"vhost", "V", "the plugin's vhost (default: that of amqp.url)", CLI_TAKE(text, import_order, vhost),
     .of = "plugin"},
    {"margin", "D", "leave messages due within this time to the plugin (default: 60s)",
     CLI_TAKE(duration, import_order, margin_ms), .of = "plugin"},
    {"rate", "N", "messages per second at most", CLI_TAKE(number, import_order, rate), .max = 1000000,
     .of = "plugin"},
    {"batch", "N", "messages per transaction (default: 4000)", CLI_TAKE(number, import_order, batch),
     .max = IMPORT_BATCH_MAX, .of = "plugin"},
    {"rabbitmqctl", "PATH", "default: $RABBITMQCTL, or rabbitmqctl in PATH",
     CLI_TAKE(text, import_order, rabbitmqctl), .of = "plugin", .words = CLI_FILE},
    {0},
};

static const struct cli_verb verbs[] = {
    {"plugin", .run = run_plugin},
    {"verify", .run = run_verify, 1, 1, "give the FILE that --proof wrote", .takes_file = true},
    {0},
};

const struct command command_import = {
    .name = "import",
    .synopsis = "plugin --exchange OLD=NEW... [OPTIONS] | verify FILE",
    .summary = "Import the waiting messages of RabbitMQ's delayed-message plugin, with proof",
    .notes =
        "Run it where rabbitmqctl runs. You can interrupt and repeat it at any time: no message is lost or\n"
        "delivered twice. Exit 1: some messages were rejected, and stay with the plugin.",
    .options = options,
    .verbs = verbs,
    .opens = true,
    .choices = "write plugin or verify",
    .order_size = sizeof(struct import_order),
    .initial = &(const struct import_order){.margin_ms = MARGIN_MS, .batch = IMPORT_BATCH_MAX},
};
