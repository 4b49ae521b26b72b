/* The table of operations, and their execution by a worker. */
#include "gateway/ops/api_operation.h"

#include "core/base/rate.h"
#include "gateway/ops/api_internal.h"

#include <stdio.h>
#include <string.h>

#define PAGE " page_size page_token"
#define EVERYTHING .for_all = "this applies to all exchanges: it needs"
#define POLICY                                                                                               \
    .noun = ASK_RETRY_POLICY, .for_all = "retry policies apply to queues of any exchange: they need"
#define RATE .noun = ASK_RATE
#define NAMES (rate_fields + 2) /* without rate and burst */
#define HELD .for_all = "changing a rate affects all publishers and needs"

#define EXCHANGE "such as \"orders\", up to 255 bytes; \"\" is the default exchange"
static const struct api_field rate_match[] = {
    {"exchange", API_FIELD_NAME, .required = true, .allowed = EXCHANGE},
    {"routing_key", .kind = API_FIELD_NAME},
    {0}};
static const struct api_field rate_fields[] = {
    {"rate", API_FIELD_RATE, .required = true,
     .allowed = "a string, such as \"200/s\", \"12000/min\" or, to pause, \"0\""},
    {"burst", API_FIELD_NUMBER, .most = RATE_BURST_MAX, .allowed = "a whole number from 1 to 1000000"},
    {"exchange", .kind = API_FIELD_NAME},
    {"routing_key", .kind = API_FIELD_NAME},
    {0},
};
static const struct api_field policy_match[] = {{"queue", .kind = API_FIELD_NAME}, {0}};

/* clang-format off */
#define OP(called, how, where, takes, by, may, ...) \
    {.name = (called), .method = #how, .path = (where), .params = takes, .threads = API_##by, .effect = API_##may, __VA_ARGS__}
const struct api_operation api_operations[] = {
    OP("schedule",            POST,   "/v1/messages",                 "",                      GROUP_COMMIT, KEYED,      .large = true),
    OP("show",                GET,    NULL,                           "key exchange view",     WORKER,       READS,      .run = api_show, .in_cells = true),
    OP("show",                GET,    "/v1/messages/{id}",            "view",                  WORKER,       READS,      .run = api_show, .in_cells = true),
    OP("list",                GET,    "/v1/messages",                 API_FILTER PAGE " order", WORKER,       READS,      .run = api_list),
    OP("cancel",              DELETE, "/v1/messages",                 "key exchange",          WORKER,       IDEMPOTENT, .run = api_cancel, .in_cells = true),
    OP("cancel",              DELETE, "/v1/messages/{id}",            "",                      WORKER,       IDEMPOTENT, .run = api_cancel, .in_cells = true),
    OP("reschedule",          PATCH,  "/v1/messages/{id}",            "",                      WORKER,       CHANGES,    .run = api_reschedule, .in_cells = true),
    OP("retry",               POST,   "/v1/messages/{id}:retry",      "",                      WORKER,       CHANGES,    .run = api_retry, .kind = OPERATE_RETRY, .empty = true, .in_cells = true),
    OP("fail",                POST,   "/v1/messages/{id}:fail",       "",                      WORKER,       IDEMPOTENT, .run = api_retry, .kind = OPERATE_FAIL, .empty = true, .in_cells = true),
    OP("cancel",              POST,   "/v1/messages:cancel",          "",                      BULK_WORKER,  IDEMPOTENT, .run = api_bulk, .kind = OPERATE_CANCEL),
    OP("reschedule",          POST,   "/v1/messages:reschedule",      "",                      BULK_WORKER,  CHANGES,    .run = api_bulk, .kind = OPERATE_RESCHEDULE, .needs_key = true),
    OP("retry",               POST,   "/v1/messages:retry",           "",                      BULK_WORKER,  CHANGES,    .run = api_bulk, .kind = OPERATE_RETRY),
    OP("fail",                POST,   "/v1/messages:fail",            "",                      BULK_WORKER,  IDEMPOTENT, .run = api_bulk, .kind = OPERATE_FAIL),
    OP("stats",               GET,    "/v1/stats",                    "",                      STATISTICS,   READS,      .run = NULL),
    OP("dead_list",           GET,    "/v1/dead",                     API_DEAD_FILTER PAGE,    WORKER,       READS,      .run = api_dead_list),
    OP("dead_groups",         GET,    "/v1/dead:groups",              API_DEAD_FILTER,         WORKER,       READS,      .run = api_dead_groups),
    OP("dead_show",           GET,    "/v1/dead/{id}",                "queue",                 WORKER,       READS,      .run = api_dead_show),
    OP("dead_requeue",        POST,   "/v1/dead:requeue",             "",                      BULK_WORKER,  IDEMPOTENT, .run = api_dead_bulk, .kind = DEAD_REQUEUE),
    OP("dead_drop",           POST,   "/v1/dead:drop",                "",                      BULK_WORKER,  IDEMPOTENT, .run = api_dead_bulk, .kind = DEAD_DROP),
    OP("retry_policy_list",   GET,    "/v1/retry-policies",           "",                      WORKER,       READS,      .run = api_ask, POLICY, .answers = "policies"),
    OP("retry_policy_match",  GET,    "/v1/retry-policies:match",     "queue",                 WORKER,       READS,      .run = api_ask, POLICY, .fields = policy_match),
    OP("retry_policy_show",   GET,    "/v1/retry-policies/{pattern}", "",                      WORKER,       READS,      .run = api_ask, POLICY),
    OP("retry_policy_set",    PUT,    "/v1/retry-policies/{pattern}", "",                      WORKER,       IDEMPOTENT, .run = api_policy_set, POLICY),
    OP("retry_policy_remove", DELETE, "/v1/retry-policies/{pattern}", "",                      WORKER,       IDEMPOTENT, .run = api_ask, POLICY, .answers = "removed", .removes = true),
    OP("recur_list",          GET,    "/v1/recurring",                PAGE,                    WORKER,       READS,      .run = api_recur_list),
    OP("recur_show",          GET,    "/v1/recurring/{name}",         "",                      WORKER,       READS,      .run = api_ask),
    OP("recur_set",           PUT,    "/v1/recurring/{name}",         "",                      WORKER,       IDEMPOTENT, .run = api_recur_set, .large = true, .conditional = true),
    OP("recur_remove",        DELETE, "/v1/recurring/{name}",         "",                      WORKER,       IDEMPOTENT, .run = api_ask, .answers = "removed", .conditional = true, .removes = true),
    OP("recur_pause",         POST,   "/v1/recurring/{name}:pause",   "",                      WORKER,       IDEMPOTENT, .run = api_ask, .empty = true, .conditional = true),
    OP("recur_resume",        POST,   "/v1/recurring/{name}:resume",  "",                      WORKER,       IDEMPOTENT, .run = api_ask, .empty = true, .conditional = true),
    OP("recur_run",           POST,   "/v1/recurring/{name}:run",     "",                      WORKER,       KEYED,      .run = api_recur_run, .answers = "id", .empty = true, .conditional = true),
    OP("recur_history",       GET,    "/v1/recurring/{name}:history", "",                      WORKER,       READS,      .run = api_ask, .answers = "changes"),
    OP("recur_preview",       GET,    "/v1/recurring:preview",        "name cron dialect zone n from dst", WORKER,       READS,      .run = api_recur_preview, .answers = "times"),
    OP("whoami",              GET,    "/v1/whoami",                   "",                      WORKER,       READS,      .run = api_whoami),
    OP("slo",                 GET,    "/v1/slo",                      "",                      WORKER,       READS,      .run = api_slo, EVERYTHING),
    OP("forecast",            GET,    "/v1/forecast",                 "from until step exchange what_if", WORKER,       READS,      .run = api_forecast),
    OP("overview",            GET,    "/v1/overview",                 "",                      STATISTICS,   READS,      EVERYTHING),
    OP("rate_list",           GET,    "/v1/rates",                    "",                      WORKER,       READS,      .run = api_ask, RATE, .answers = "rates"),
    OP("rate_match",          GET,    "/v1/rates:match",              "exchange routing_key",  WORKER,       READS,      .run = api_ask, RATE, .fields = rate_match),
    OP("rate_show",           GET,    "/v1/rates/{exchange}",         "routing_key",           WORKER,       READS,      .run = api_ask, RATE, .fields = NAMES),
    OP("rate_set",            PUT,    "/v1/rates/{exchange}",         "routing_key",           WORKER,       IDEMPOTENT, .run = api_ask, RATE, .fields = rate_fields, HELD),
    OP("rate_remove",         DELETE, "/v1/rates/{exchange}",         "routing_key",           WORKER,       IDEMPOTENT, .run = api_ask, RATE, .fields = NAMES, .answers = "removed", HELD, .removes = true),
    OP("rate_pause",          POST,   "/v1/rates/{exchange}/pause",   "routing_key",           WORKER,       IDEMPOTENT, .run = api_ask, RATE, .fields = NAMES, HELD),
    OP("rate_resume",         POST,   "/v1/rates/{exchange}/resume",  "routing_key",           WORKER,       IDEMPOTENT, .run = api_ask, RATE, .fields = NAMES, HELD),
    {.name = NULL},
};
/* clang-format on */

bool api_operation_has_body(const struct api_operation *op)
{
    return op->method[0] == 'P';
}

bool api_operation_is_keyed(const struct api_operation *op)
{
    return op->effect == API_KEYED || op->threads == API_BULK_WORKER;
}

/* A count tells what this one found to do; a removal finds nothing the second time, and a condition is not
 * met any more; what runs once more runs twice. */
bool api_operation_repeats(const struct api_request *r)
{
    return r->op->effect == API_READS ||
           (r->op->effect == API_IDEMPOTENT && r->op->threads == API_WORKER && !r->op->removes &&
            r->if_match.data == NULL && r->if_none_match.data == NULL);
}

/* A field may be null. */
static bool has_field(const json_t *request, struct bytes name)
{
    return json_object_getn(request, (const char *)name.data, name.len) != NULL;
}

const struct api_operation *api_operation_find(const json_t *request)
{
    struct bytes name = json_text(json_object_get(request, "op"));
    const struct api_operation *found = NULL;
    int best = -1;
    for (const struct api_operation *op = api_operations; op->name != NULL; op++) {
        struct bytes id = api_operation_id(op);
        if (!bytes_equal_str(name, op->name))
            continue;
        int fits = 2 * ((op->threads == API_BULK_WORKER) == has_field(request, bytes_of_str("filter"))) +
                   ((id.len > 0) == has_field(request, id.len > 0 ? id : bytes_of_str("id")));
        if (fits > best)
            found = op;
        best = fits > best ? fits : best;
    }
    return found;
}

const char *api_operation_names(char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (const struct api_operation *op = api_operations; op->name != NULL && used < size; op++) {
        const struct api_operation *same = api_operations;
        while (strcmp(same->name, op->name) != 0)
            same++;
        if (same == op)
            used += (size_t)snprintf(out + used, size - used, "%s%s", used > 0 ? ", " : "", op->name);
    }
    return out;
}

bool api_admits(struct api_request *r)
{
    struct err e = {0};
    if (api_params_check(&r->params, r->op->params, &e) != 0)
        api_fail(&r->answer, API_INVALID_REQUEST, "%s", e.text);
    else if (r->op->for_all != NULL && !api_scope_is_all(r->scope))
        api_fail(&r->answer, API_EXCHANGE_NOT_ALLOWED,
                 "%s a token for all exchanges (`postdate token create --exchange '*'`)", r->op->for_all);
    else
        return true;
    return false;
}

/* Over HTTP a body is required, at least {}: a browser sends requests without a body to any address for any
 * page. False: the answer is made. */
static bool take_body(struct api_context *c, struct api_request *r)
{
    if (!api_operation_has_body(r->op))
        return true;
    c->body = api_parse_body(r->body, &r->answer);
    if (c->body != NULL && r->op->empty && json_object_size(c->body) > 0)
        api_fail(&r->answer, API_INVALID_MESSAGE, "write {}: there are no fields");
    else
        return c->body != NULL;
    return false;
}

/* The error is in the request, or the object is missing. */
static int answer_err(struct api_request *r, const struct err *e)
{
    if (e->kind != ERR_NOT_FOUND && e->kind != ERR_REJECT)
        return -1;
    api_fail(&r->answer,
             e->kind == ERR_NOT_FOUND        ? API_NOT_FOUND
             : api_operation_has_body(r->op) ? API_INVALID_MESSAGE
                                             : API_INVALID_REQUEST,
             "%s", e->text);
    return 0;
}

static int run_operation(struct api_context *c, struct api_request *r, struct err *e)
{
    arena_init(&c->arena, API_RECORD_MAX);
    struct json_memory_scope outer = json_memory_begin();
    c->value = NULL;
    int rc = r->op->run(c, r, e);
    bool no_memory = json_memory_end(outer);
    if (rc != 0)
        rc = answer_err(r, e);
    else if (no_memory)
        api_fail(&r->answer, API_OVERLOADED, "not enough memory for this answer now");
    else if (c->value != NULL) {
        r->answer.status = 200;
        api_dump(c->value, &r->answer);
    }
    json_decref(c->value);
    arena_free(&c->arena);
    return rc;
}

int api_run(struct api_context *c, struct api_request *r, struct err *e)
{
    c->body = NULL;
    if (!api_admits(r))
        return 0;
    if (r->op->run == NULL)
        return err_set(e, ERR_BUG, "%s is not supported over the control queue", r->op->name);
    int rc = take_body(c, r) ? run_operation(c, r, e) : 0;
    json_decref(c->body);
    return rc;
}
