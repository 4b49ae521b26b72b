/* Operations on dead letters and on retry policies. */
#include "gateway/api/api_internal.h"
#include "gateway/json/json_dead.h"
#include "sql/operate/retry.h"
#include "sql/pipeline/lineage.h"

/* --- Dead letters: pages, groups, and one. */

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

/* --- Retry policies. They are of queues, whatever exchange fills them: so who has a token needs one for all
 * exchanges (for_all in the table of operations). */

int api_policy_list(struct api_context *c, struct api_request *r, struct err *e)
{
    struct retry_policy *list;
    size_t count = 0;
    (void)r;
    if (lineage_policies(c->pg, &c->arena, &list, &count, e) != 0)
        return -1;
    json_t *policies = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(policies, json_policy_value(&list[i]));
    c->value = json_pack("{s:o}", "policies", policies);
    return 0;
}

int api_policy_match(struct api_context *c, struct api_request *r, struct err *e)
{
    struct bytes queue;
    struct retry_match m;
    if (api_param_name(&r->params, "queue", &queue, e) != 0)
        return -1;
    if (queue.len == 0)
        return err_set(e, ERR_REJECT, "queue: name a queue (1 to %d bytes)", MESSAGE_NAME_MAX);
    if (retry_match(c->pg, queue, &c->arena, &m, e) != 0)
        return -1;
    c->value = json_match_value(&m, queue);
    return 0;
}

static int check_pattern(const struct api_request *r, struct err *e)
{
    return bytes_is_text(r->id) ? 0 : err_set(e, ERR_NOT_FOUND, "the pattern is not UTF-8 text without NUL");
}

int api_policy_show(struct api_context *c, struct api_request *r, struct err *e)
{
    struct retry_policy p;
    if (check_pattern(r, e) != 0 || retry_get(c->pg, r->id, &c->arena, &p, e) != 0)
        return -1;
    c->value = json_policy_value(&p);
    return 0;
}

int api_policy_set(struct api_context *c, struct api_request *r, struct err *e)
{
    struct retry_policy p;
    if (json_policy_read(c->body, r->id, &p, e) != 0 || retry_set(c->pg, &p, e) != 0)
        return -1;
    c->value = json_policy_value(&p);
    return 0;
}

int api_policy_remove(struct api_context *c, struct api_request *r, struct err *e)
{
    if (check_pattern(r, e) != 0 || retry_remove(c->pg, r->id, e) != 0)
        return -1;
    c->value = json_pack("{s:b}", "removed", 1);
    return 0;
}
