#include "gateway/cli/import/import_call.h"

#include "core/base/base64.h"
#include "core/base/names.h"
#include "gateway/cli/rabbitmqctl.h"
#include "plugin_embedded.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUN_MS 300000
#define OUT_MAX ((size_t)384 * 1024 * 1024) /* a batch, and one message of any size */
#define FIELDS_MAX 8

void import_answer_init(struct import_answer *a)
{
    *a = (struct import_answer){0};
    arena_init(&a->arena, OUT_MAX);
    buf_init(&a->out, OUT_MAX);
    buf_init(&a->entry_list, OUT_MAX);
    buf_init(&a->survey_list, OUT_MAX);
}

void import_answer_free(struct import_answer *a)
{
    arena_free(&a->arena);
    buf_free(&a->out);
    buf_free(&a->entry_list);
    buf_free(&a->survey_list);
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

bool import_ids_has(const struct import_ids *list, struct message_id id)
{
    return list->count > 0 && bsearch(&id, list->ids, list->count, sizeof id, compare_ids) != NULL;
}

/* --- what is asked */

static void set_flag(struct rabbitmqctl *r, const char *name, bool v)
{
    rabbitmqctl_set(r, name, v ? "true" : "false");
}

/* They have the same names in plugin.erl. */
static void set_variables(struct rabbitmqctl *r, const struct import_call *c)
{
    rabbitmqctl_set(r, "Owner", "<<\"%s\">>", c->owner);
    rabbitmqctl_set(r, "Run", "<<\"%s\">>", c->run);
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
    rabbitmqctl_set(r, "Margin", "%" PRId64, c->margin_ms);
    set_flag(r, "Bodies", c->with_bodies);
    rabbitmqctl_set(r, "Body_max", "%zu", c->max_body);
    rabbitmqctl_set_bytes(r, "Vhost", bytes_of_str(c->vhost));
    rabbitmqctl_set_bytes(r, "Own", bytes_of_str(broker_names.delayed));
    rabbitmqctl_set_bytes(r, "Take", bytes_of(c->take, c->take_count * sizeof *c->take));
    rabbitmqctl_set_bytes(r, "Look", bytes_of(c->look, c->look_count * sizeof *c->look));
    rabbitmqctl_set(r, "Look_from", "%" PRId64, c->look_from_ms);
    rabbitmqctl_set(r, "Look_to", "%" PRId64, c->look_to_ms);
}

/* --- what is answered */

struct line {
    struct bytes word[FIELDS_MAX];
    size_t count;
};

static struct line split_line(struct bytes text)
{
    struct line l = {0};
    while (l.count < FIELDS_MAX) {
        const uint8_t *end = text.len > 0 ? memchr(text.data, ' ', text.len) : NULL;
        size_t len = end != NULL ? (size_t)(end - text.data) : text.len;
        l.word[l.count++] = bytes_of(text.data, len);
        if (end == NULL)
            break;
        text = bytes_of(end + 1, text.len - len - 1);
    }
    return l;
}

static int64_t number_of(struct bytes word)
{
    int64_t n = 0;
    for (size_t i = 0; i < word.len && i < 18 && word.data[i] >= '0' && word.data[i] <= '9'; i++)
        n = n * 10 + (word.data[i] - '0');
    return n;
}

/* "=Ym9keQ==" */
static bool take_bytes(struct arena *a, struct bytes word, struct bytes *out)
{
    if (word.len == 0 || word.data[0] != '=')
        return false;
    return base64_decode(bytes_of(word.data + 1, word.len - 1), a, out) && (out->data || out->len == 0);
}

static bool take_ids(struct import_answer *a, struct bytes word, struct import_ids *out)
{
    struct bytes v;
    if (!take_bytes(&a->arena, word, &v) || v.len % sizeof *out->ids != 0)
        return false;
    if (v.len > 0)
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

static bool take_entry(struct import_answer *a, const struct line *l)
{
    struct bytes id, why;
    bool is_known = l->word[0].data[0] == 'M';
    struct import_entry *m = l->count == (is_known ? 8 : 5) ? put_one(&a->entry_list, sizeof *m) : NULL;
    if (m == NULL)
        return false;
    m->due_ms = number_of(l->word[2]);
    if (!take_bytes(&a->arena, l->word[1], &id) || id.len != sizeof m->id ||
        !take_bytes(&a->arena, l->word[3], &m->exchange))
        return false;
    memcpy(&m->id, id.data, sizeof m->id);
    if (!is_known) {
        if (!take_bytes(&a->arena, l->word[4], &why))
            return false;
        m->unknown = arena_strdup(&a->arena, why);
        return m->unknown != NULL;
    }
    m->size = (size_t)number_of(l->word[4]);
    m->keys = bytes_of(l->word[6].data + 1, l->word[6].len - 1);
    m->body.len = m->size;
    return take_bytes(&a->arena, l->word[5], &m->properties) && l->word[6].len > 0 &&
           (bytes_equal_str(l->word[7], "-") || take_bytes(&a->arena, l->word[7], &m->body));
}

static bool take_survey(struct import_answer *a, const struct line *l)
{
    struct import_survey *s = l->count == 6 ? put_one(&a->survey_list, sizeof *s) : NULL;
    if (s == NULL)
        return false;
    *s = (struct import_survey){.hour = number_of(l->word[3]),
                                .soon = bytes_equal_str(l->word[4], "1"),
                                .count = number_of(l->word[5])};
    return take_bytes(&a->arena, l->word[1], &s->vhost) && take_bytes(&a->arena, l->word[2], &s->exchange);
}

static bool take_node(struct import_answer *a, const struct line *l)
{
    if (a->node_count < IMPORT_NODES_MAX)
        snprintf(a->nodes[a->node_count++], IMPORT_NODE_SIZE, "%.*s", (int)l->word[1].len,
                 (const char *)l->word[1].data);
    return true;
}

static bool take_mark(struct import_answer *a, const struct line *l)
{
    struct import_ids ids = {0};
    if (!take_ids(a, l->word[1], &ids))
        return false;
    if (ids.count > 0) /* there is one at most: the last batch's */
        a->marks = ids;
    return true;
}

/* False: that is no line of plugin.erl. */
static bool take_line(struct import_answer *a, const struct line *l)
{
    static const size_t words[128] = {
        ['V'] = 4, ['Q'] = 2, ['K'] = 2, ['W'] = 2, ['T'] = 2, ['P'] = 2, ['C'] = 3};
    uint8_t kind = l->word[0].len == 1 ? l->word[0].data[0] & 0x7f : 0;
    if (words[kind] != 0 && l->count != words[kind])
        return false;
    switch (kind) {
    case 'V':
        snprintf(a->node, sizeof a->node, "%.*s", (int)l->word[1].len, (const char *)l->word[1].data);
        a->now_ms = number_of(l->word[2]);
        a->has_timer = bytes_equal_str(l->word[3], "1");
        a->has_table = true;
        return true;
    case 'N':
        a->has_table = false;
        return true;
    case 'Q':
        snprintf(a->before, sizeof a->before, "%.*s", (int)l->word[1].len, (const char *)l->word[1].data);
        return true;
    case 'K':
        return take_mark(a, l);
    case 'W':
        return take_node(a, l);
    case 'S':
        return take_survey(a, l);
    case 'T':
        return take_ids(a, l->word[1], &a->taken);
    case 'P':
        return take_ids(a, l->word[1], &a->present);
    case 'M':
    case 'U':
        return take_entry(a, l);
    case 'C':
        a->next = bytes_equal_str(l->word[1], "done")   ? IMPORT_READ_NOTHING
                  : bytes_equal_str(l->word[1], "lost") ? IMPORT_READ_LOST
                                                        : IMPORT_READ_FROM;
        a->next_ms = number_of(l->word[2]);
        return true;
    case 'B':
    case 'G':
    case 'F':
    case 'O':
        a->is_down |= kind == 'B';
        a->gone |= kind == 'G';
        a->fenced |= kind == 'F';
        a->ended |= kind == 'O';
        return true;
    default:
        return false;
    }
}

/* Up to the line "E". */
static bool read_answer(struct import_answer *a)
{
    struct bytes rest = buf_bytes(&a->out);
    while (rest.len > 0) {
        const uint8_t *end = memchr(rest.data, '\n', rest.len);
        if (end == NULL)
            return false;
        struct bytes text = bytes_of(rest.data, (size_t)(end - rest.data));
        rest = bytes_of(end + 1, rest.len - text.len - 1);
        if (bytes_equal_str(text, "E"))
            return true;
        const struct line l = split_line(text);
        if (!take_line(a, &l))
            return false;
    }
    return false;
}

static int answer_fail(const struct import_call *c, const struct import_answer *a, struct err *e)
{
    char first[200];
    const char *node = c->node != NULL ? c->node : "the node that rabbitmqctl reaches";
    if (a->out.failed)
        return err_set(
            e, ERR_BUG,
            "%s: the answer of rabbitmqctl is too large (allowed: %zu MiB): give a smaller --batch", node,
            OUT_MAX >> 20);
    size_t shown = a->out.len < 120 ? a->out.len : 120;
    return err_set(e, ERR_AWAY, "%s: rabbitmqctl gave an answer that is not understood: %s", node,
                   bytes_printable(bytes_of(a->out.data, shown), first, sizeof first));
}

int import_call_run(const struct import_call *call, struct import_answer *a, struct err *e)
{
    struct rabbitmqctl r;
    answer_reset(a);
    rabbitmqctl_init(&r);
    r.path = call->rabbitmqctl;
    r.node = call->node;
    r.timeout_ms = RUN_MS;
    set_variables(&r, call);
    int rc = rabbitmqctl_eval(&r, plugin_erl, &a->out, e);
    rabbitmqctl_free(&r);
    if (rc == 0 && !read_answer(a))
        rc = answer_fail(call, a, e);
    a->entries = (void *)a->entry_list.data;
    a->count = a->entry_list.len / sizeof *a->entries;
    a->surveys = (void *)a->survey_list.data;
    a->survey_count = a->survey_list.len / sizeof *a->surveys;
    if (rc == 0 && a->is_down)
        rc = err_set(
            e, ERR_AWAY,
            "node %s is starting or stopped, or Mnesia does not run there: run this again when it is up",
            a->node);
    return rc;
}
