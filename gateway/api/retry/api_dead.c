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
    struct buf *out;
    uint8_t position[API_POSITION_MAX]; /* behind the last one */
    size_t position_len;
    int64_t wanted, count;
    bool more;
    struct err e;
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
    if (l->count++ > 0)
        buf_put_str(l->out, ",");
    note_position(l, r);
    return json_dead_print(r, JSON_STYLE_NO_BODY, l->out, &l->e) == 0;
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

static void end_page(struct api_context *c, struct api_request *r, const struct listing *l)
{
    buf_put_str(l->out, "],\"next_page_token\":");
    if (l->more) {
        buf_put_str(l->out, "\"");
        api_page_print(c, r, &pages, bytes_of(l->position, l->position_len), l->out);
        buf_put_str(l->out, "\"}\n");
    } else {
        buf_put_str(l->out, "null}\n");
    }
    r->answer.status = 200;
    if (l->e.kind != ERR_NONE || l->out->failed)
        api_fail(&r->answer, API_INTERNAL, "%s", l->e.kind != ERR_NONE ? l->e.text : "out of memory");
}

int api_dead_list(struct api_context *c, struct api_request *r, struct err *e)
{
    struct listing l = {.out = &r->answer.body};
    struct dead_filter filter;
    struct dead_list what = {.filter = &filter, .each = on_record, .ctx = &l};
    uint8_t position[API_POSITION_MAX];
    if (api_params_check(r, list_names) != 0 || api_dead_filter(r, &filter, &r->answer) != 0 ||
        api_page_size(r, &l.wanted) != 0 || read_position(c, r, position, &what.after) != 0)
        return 0;
    what.limit = l.wanted + 1;
    buf_reset(l.out);
    buf_put_str(l.out, "{\"dead_letters\":[");
    if (dead_list(c->pg, api_operate_scope(r), &what, e) != 0)
        return -1;
    end_page(c, r, &l);
    return 0;
}

/* --- groups */

int api_dead_groups(struct api_context *c, struct api_request *r, struct err *e)
{
    struct dead_filter filter;
    struct dead_groups g;
    struct arena arena;
    struct err print = {0};
    struct buf *out = &r->answer.body;
    if (api_params_check(r, api_dead_names) != 0 || api_dead_filter(r, &filter, &r->answer) != 0)
        return 0;
    arena_init(&arena, GROUPS_MAX);
    int rc = dead_groups(c->pg, api_operate_scope(r), &filter, &arena, &g, e);
    buf_reset(out);
    buf_put_str(out, "{\"groups\":[");
    for (size_t i = 0; rc == 0 && i < g.count && print.kind == ERR_NONE; i++) {
        buf_put_str(out, i > 0 ? "," : "");
        json_dead_group_print(&g.groups[i], JSON_STYLE_LINE, out, &print);
    }
    buf_printf(out, "],\"complete\":%s}\n", rc == 0 && g.complete ? "true" : "false");
    arena_free(&arena);
    r->answer.status = 200;
    if (rc == 0 && (print.kind != ERR_NONE || out->failed))
        api_fail(&r->answer, API_INTERNAL, "%s", print.kind != ERR_NONE ? print.text : "out of memory");
    return rc;
}

/* --- one */

int api_dead_show(struct api_context *c, struct api_request *r, struct err *e)
{
    struct dead_name name = {0};
    struct dead_letter_record record;
    struct arena arena;
    struct err print = {0};
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
        r->answer.status = 200;
        buf_reset(&r->answer.body);
        if (json_dead_print(&record, JSON_STYLE_LINE, &r->answer.body, &print) != 0)
            api_fail(&r->answer, API_INTERNAL, "%s", print.text);
        else
            buf_put_str(&r->answer.body, "\n");
    }
    arena_free(&arena);
    return answered ? 0 : rc;
}
