/* Retry policies. They are of queues, whatever exchange fills them: so who has a token needs one for all
 * exchanges. */
#include "gateway/api/api_internal.h"
#include "gateway/json/json_dead.h"
#include "sql/operate/retry.h"
#include "sql/pipeline/lineage.h"

#define POLICIES_MAX ((size_t)16 * 1024 * 1024)

/* False: answered. */
static bool may_touch(struct api_request *r)
{
    if (api_scope_is_all(r->scope))
        return true;
    api_fail(&r->answer, API_EXCHANGE_NOT_ALLOWED,
             "retry policies are of queues: they need a token for all exchanges (`postdate token create "
             "--exchange '*'`)");
    return false;
}

static void answer_policy(struct api_request *r, const struct retry_policy *p)
{
    struct json_memory_scope outer = json_memory_begin();
    api_answer_json(r, json_policy_value(p), outer);
}

int api_policy_list(struct api_context *c, struct api_request *r, struct err *e)
{
    struct retry_policy *list;
    size_t count = 0;
    struct arena arena;
    if (!api_takes_nothing(r) || !may_touch(r))
        return 0;
    arena_init(&arena, POLICIES_MAX);
    int rc = lineage_policies(c->pg, &arena, &list, &count, e);
    if (rc == 0) {
        struct json_memory_scope outer = json_memory_begin();
        json_t *policies = json_array();
        for (size_t i = 0; i < count; i++)
            json_array_append_new(policies, json_policy_value(&list[i]));
        api_answer_json(r, json_pack("{s:o}", "policies", policies), outer);
    }
    arena_free(&arena);
    return rc;
}

int api_policy_match(struct api_context *c, struct api_request *r, struct err *e)
{
    struct bytes queue;
    struct retry_match m;
    struct arena arena;
    if (api_params_check(r, (const char *const[]){"queue", NULL}) != 0 ||
        api_param_name(r, "queue", &queue, &r->answer) != 0 || !may_touch(r))
        return 0;
    if (queue.len == 0) {
        api_fail(&r->answer, API_INVALID_REQUEST, "queue: name a queue (1 to %d bytes)", MESSAGE_NAME_MAX);
        return 0;
    }
    arena_init(&arena, POLICIES_MAX);
    int rc = retry_match(c->pg, queue, &arena, &m, e);
    if (rc == 0) {
        struct json_memory_scope outer = json_memory_begin();
        api_answer_json(r, json_match_value(&m, queue), outer);
    }
    arena_free(&arena);
    return rc;
}

int api_policy_show(struct api_context *c, struct api_request *r, struct err *e)
{
    struct retry_policy p;
    struct arena arena;
    if (!api_takes_nothing(r) || !may_touch(r))
        return 0;
    arena_init(&arena, POLICIES_MAX);
    int rc = bytes_is_text(r->id) ? retry_get(c->pg, r->id, &arena, &p, e)
                                  : err_set(e, ERR_NOT_FOUND, "the pattern is not UTF-8 text");
    if (rc == 0)
        answer_policy(r, &p);
    else
        rc = api_answer_err(r, e);
    arena_free(&arena);
    return rc;
}

int api_policy_set(struct api_context *c, struct api_request *r, struct err *e)
{
    struct retry_policy p;
    if (!api_takes_nothing(r) || !may_touch(r))
        return 0;
    json_t *root = api_parse_body(r->body, &r->answer);
    if (root == NULL)
        return 0;
    int rc = json_policy_read(root, r->id, &p, e);
    if (rc == 0)
        rc = retry_set(c->pg, &p, e);
    if (rc == 0)
        answer_policy(r, &p);
    else
        rc = api_answer_err(r, e);
    json_decref(root);
    return rc;
}

int api_policy_remove(struct api_context *c, struct api_request *r, struct err *e)
{
    if (!api_takes_nothing(r) || !may_touch(r))
        return 0;
    int rc = bytes_is_text(r->id) ? retry_remove(c->pg, r->id, e)
                                  : err_set(e, ERR_NOT_FOUND, "the pattern is not UTF-8 text");
    if (rc != 0)
        return api_answer_err(r, e);
    api_answer_removed(r);
    return 0;
}
