/* Dead letters: pages, groups, and one. */
#include "gateway/api/api_internal.h"
#include "gateway/json/json_dead.h"

#include <string.h>

#define RECORD_MAX ((size_t)300 * 1024 * 1024) /* one, its printed form */
#define GROUPS_MAX ((size_t)16 * 1024 * 1024)
#define POSITION_HEAD 24 /* died, id; the queue follows, filled up with zeros */

const char *const api_dead_names[] = {"queue", "reason", "exchange", "routing_key", NULL};
static const char *const list_names[] = {"queue",     "reason",     "exchange", "routing_key",
                                         "page_size", "page_token", NULL};
static const struct api_pages pages = {
    .version = 2, .names = api_dead_names, .least = POSITION_HEAD + 3, .most = API_POSITION_MAX};

int api_dead_filter(const struct api_request *r, struct dead_filter *f, struct api_answer *a)
{
    char shown[80];
    *f = (struct dead_filter){0};
    if (api_param_name(r, "queue", &f->queue, a) != 0 || api_param_name(r, "reason", &f->reason, a) != 0 ||
        api_param_name(r, "exchange", &f->exchange, a) != 0 ||
        api_param_name(r, "routing_key", &f->routing_key, a) != 0)
        return -1;
    if (f->reason.data == NULL || dead_is_reason(f->reason))
        return 0;
    api_fail(a, API_INVALID_REQUEST, "reason: \"%s\" is none: allowed are " DEAD_REASONS,
             bytes_printable(f->reason, shown, sizeof shown));
    return -1;
}

/* --- pages */

struct listing {
    json_t *letters;
    uint8_t position[API_POSITION_MAX]; /* behind the last one */
    size_t position_len;
    int64_t wanted, count;
    bool more;
};

static void note_position(struct listing *l, const struct dead_letter_record *r)
{
    size_t len = r->queue.len < 255 ? r->queue.len : 255;
    memset(l->position, 0, sizeof l->position);
    for (int i = 0; i < 8; i++)
        l->position[i] = (uint8_t)((uint64_t)r->died_us >> (56 - 8 * i));
    memcpy(l->position + 8, r->id.b, 16);
    memcpy(l->position + POSITION_HEAD, r->queue.data, len);
    l->position_len = POSITION_HEAD + (len + 2) / 3 * 3;
}

static bool on_record(void *ctx, const struct dead_letter_record *r)
{
    struct listing *l = ctx;
    l->more = l->count == l->wanted;
    if (l->more)
        return false; /* one more than was asked for: so there is a next page */
    l->count++;
    note_position(l, r);
    json_array_append_new(l->letters, json_dead_value(r, JSON_STYLE_NO_BODY, NULL));
    return !json_memory_refused();
}

/* 0: at is filled, and points into position. */
static int read_position(const struct api_context *c, struct api_request *r,
                         uint8_t position[API_POSITION_MAX], struct dead_position *at)
{
    int64_t died_us = 0;
    int len = api_page_read(c, r, &pages, position);
    *at = (struct dead_position){0};
    if (len <= 0)
        return len;
    for (int i = 0; i < 8; i++)
        died_us = died_us << 8 | position[i];
    while (len > POSITION_HEAD && position[len - 1] == 0)
        len--;
    at->died_us = died_us;
    memcpy(at->id.b, position + 8, 16);
    at->queue = bytes_of(position + POSITION_HEAD, (size_t)len - POSITION_HEAD);
    return 0;
}

int api_dead_list(struct api_context *c, struct api_request *r, struct err *e)
{
    struct listing l = {0};
    struct dead_filter filter;
    struct dead_list what = {.filter = &filter, .each = on_record, .ctx = &l};
    uint8_t position[API_POSITION_MAX];
    if (api_params_check(r, list_names) != 0 || api_dead_filter(r, &filter, &r->answer) != 0 ||
        api_page_size(r, &l.wanted) != 0 || read_position(c, r, position, &what.after) != 0)
        return 0;
    what.limit = l.wanted + 1;
    struct json_memory_scope outer = json_memory_begin();
    l.letters = json_array();
    int rc = dead_list(c->pg, api_operate_scope(r), &what, e);
    json_t *next = l.more ? api_page_value(c, r, &pages, bytes_of(l.position, l.position_len)) : json_null();
    json_t *page = json_pack("{s:o, s:o}", "dead_letters", l.letters, "next_page_token", next);
    if (rc == 0) {
        api_answer_json(r, page, outer);
        return 0;
    }
    json_decref(page);
    json_memory_end(outer);
    return -1;
}

/* --- groups */

int api_dead_groups(struct api_context *c, struct api_request *r, struct err *e)
{
    struct dead_filter filter;
    struct dead_groups g;
    struct arena arena;
    if (api_params_check(r, api_dead_names) != 0 || api_dead_filter(r, &filter, &r->answer) != 0)
        return 0;
    arena_init(&arena, GROUPS_MAX);
    int rc = dead_groups(c->pg, api_operate_scope(r), &filter, &arena, &g, e);
    if (rc == 0) {
        struct json_memory_scope outer = json_memory_begin();
        json_t *groups = json_array();
        for (size_t i = 0; i < g.count; i++)
            json_array_append_new(groups, json_dead_group_value(&g.groups[i]));
        api_answer_json(r, json_pack("{s:o, s:b}", "groups", groups, "complete", (int)g.complete), outer);
    }
    arena_free(&arena);
    return rc;
}

/* --- one */

int api_dead_show(struct api_context *c, struct api_request *r, struct err *e)
{
    struct dead_name name = {0};
    struct dead_letter_record record;
    struct arena arena;
    struct err unreadable = {0};
    char shown[80];
    if (api_params_check(r, (const char *const[]){"queue", NULL}) != 0 ||
        api_param_name(r, "queue", &name.queue, &r->answer) != 0)
        return 0;
    if (!message_id_parse(r->id, &name.id)) {
        api_fail(&r->answer, API_NOT_FOUND, "no dead letter has the id %s",
                 bytes_printable(r->id, shown, sizeof shown));
        return 0;
    }
    arena_init(&arena, RECORD_MAX);
    int rc = dead_show(c->pg, api_operate_scope(r), &name, &arena, &record, e);
    bool answered = rc != 0 && (e->kind == ERR_NOT_FOUND || e->kind == ERR_REJECT);
    if (answered)
        api_fail(&r->answer, e->kind == ERR_REJECT ? API_INVALID_REQUEST : API_NOT_FOUND, "%s", e->text);
    if (rc == 0) {
        struct json_memory_scope outer = json_memory_begin();
        json_t *value = json_dead_value(&record, JSON_STYLE_LINE, &unreadable);
        api_answer_json(r, value, outer);
        if (unreadable.kind != ERR_NONE)
            api_fail(&r->answer, API_INTERNAL, "%s", unreadable.text);
    }
    arena_free(&arena);
    return answered ? 0 : rc;
}
