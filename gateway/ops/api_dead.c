/* Operations on dead letters: pages, groups, and one. */
#include "gateway/json/json_dead.h"
#include "gateway/ops/api_internal.h"

int api_dead_filter(const struct api_params *p, struct dead_filter *f, struct err *e)
{
    char shown[80];
    *f = (struct dead_filter){0};
    if (api_param_name(p, "queue", &f->queue, e) != 0 || api_param_name(p, "reason", &f->reason, e) != 0 ||
        api_param_name(p, "exchange", &f->exchange, e) != 0 ||
        api_param_name(p, "routing_key", &f->routing_key, e) != 0)
        return -1;
    if (f->reason.data == NULL || dead_is_reason(f->reason))
        return 0;
    return err_set(e, ERR_REJECT, "reason: \"%s\" is unknown: allowed are " DEAD_REASONS,
                   bytes_printable(f->reason, shown, sizeof shown));
}

/* --- pages */
struct listing {
    struct api_context *context;
    json_t *letters;
    struct api_position at; /* the last one */
    int64_t wanted;
    bool more;
};

static bool on_record(void *ctx, const struct dead_letter_record *r)
{
    struct listing *l = ctx;
    l->more = (int64_t)json_array_size(l->letters) == l->wanted;
    if (l->more)
        return false; /* one more than was asked for: so there is a next page */
    l->at = (struct api_position){
        .at = r->died_us, .id = r->id, .name = arena_copy(&l->context->arena, r->queue)};
    if (l->at.name.data == NULL)
        json_memory_refuse();
    json_array_append_new(l->letters, json_dead_value(r, JSON_STYLE_NO_BODY, NULL));
    return !json_memory_refused();
}

int api_dead_list(struct api_context *c, struct api_request *r, struct err *e)
{
    struct listing l = {.context = c};
    struct dead_filter filter;
    struct api_position after;
    if (api_dead_filter(&r->params, &filter, e) != 0 || api_page_size(r, &l.wanted, e) != 0 ||
        api_page_read(c, r, &after, e) < 0)
        return -1;
    const struct dead_list what = {.filter = &filter,
                                   .after = {.died_us = after.at, .id = after.id, .queue = after.name},
                                   .limit = l.wanted + 1,
                                   .each = on_record,
                                   .ctx = &l};
    l.letters = json_array();
    int rc = dead_list(c->pg, api_operate_scope(r), &what, e);
    json_t *next = l.more ? api_page_value(c, r, &l.at) : json_null();
    c->value = json_pack("{s:o, s:o}", "dead_letters", l.letters, "next_page_token", next);
    return rc;
}

/* --- groups, and one */
int api_dead_groups(struct api_context *c, struct api_request *r, struct err *e)
{
    struct dead_filter filter;
    struct dead_groups g;
    if (api_dead_filter(&r->params, &filter, e) != 0 ||
        dead_groups(c->pg, api_operate_scope(r), &filter, &c->arena, &g, e) != 0)
        return -1;
    json_t *groups = json_array();
    for (size_t i = 0; i < g.count; i++)
        json_array_append_new(groups, json_dead_group_value(&g.groups[i]));
    c->value = json_pack("{s:o, s:b}", "groups", groups, "complete", (int)g.complete);
    return 0;
}

int api_dead_show(struct api_context *c, struct api_request *r, struct err *e)
{
    struct dead_name name = {0};
    struct dead_letter_record record;
    struct err unreadable = {0};
    char shown[80];
    if (api_param_name(&r->params, "queue", &name.queue, e) != 0)
        return -1;
    if (!message_id_parse(r->id, &name.id))
        return err_set(e, ERR_NOT_FOUND, "no dead letter has the id %s",
                       bytes_printable(r->id, shown, sizeof shown));
    if (dead_show(c->pg, api_operate_scope(r), &name, &c->arena, &record, e) != 0)
        return -1;
    c->value = json_dead_value(&record, JSON_STYLE_LINE, &unreadable);
    if (c->value == NULL)
        api_fail(&r->answer, API_INTERNAL, "%s", unreadable.text);
    return 0;
}
