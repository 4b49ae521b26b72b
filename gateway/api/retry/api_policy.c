/* Retry policies. They are of queues, whatever exchange fills them: so who has a token needs one for all
 * exchanges (for_all in the table of operations). */
#include "gateway/api/api_internal.h"
#include "gateway/json/json_dead.h"
#include "sql/operate/retry.h"
#include "sql/pipeline/lineage.h"

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
