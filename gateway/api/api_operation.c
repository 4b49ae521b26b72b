#include "gateway/api/api_operation.h"

#include "gateway/api/api_internal.h"

#include <stdio.h>
#include <string.h>

/* By number, and in the order in which they are listed. */
static const struct api_operation operations[] = {
    [API_SCHEDULE] = {.name = "schedule",
                      .shape = API_SHAPE_BODY,
                      .threads = API_GROUP_COMMIT,
                      .effect = API_KEYED},
    [API_SHOW] = {.name = "show",
                  .shape = API_SHAPE_PARAMS,
                  .threads = API_WORKER,
                  .effect = API_READS,
                  .run = api_run_show},
    [API_LIST] = {.name = "list",
                  .shape = API_SHAPE_PARAMS,
                  .threads = API_WORKER,
                  .effect = API_READS,
                  .run = api_list},
    [API_CANCEL] = {.name = "cancel",
                    .shape = API_SHAPE_PARAMS,
                    .threads = API_WORKER,
                    .effect = API_IDEMPOTENT,
                    .run = api_run_cancel},
    [API_RESCHEDULE] = {.name = "reschedule",
                        .shape = API_SHAPE_ID_BODY,
                        .threads = API_WORKER,
                        .effect = API_CHANGES,
                        .run = api_run_reschedule},
    [API_RETRY] = {.name = "retry",
                   .shape = API_SHAPE_ID,
                   .threads = API_WORKER,
                   .effect = API_CHANGES,
                   .run = api_run_retry},
    [API_FAIL] = {.name = "fail",
                  .is_final = true,
                  .done = "failed by hand",
                  .shape = API_SHAPE_ID_BODY,
                  .threads = API_WORKER,
                  .effect = API_IDEMPOTENT,
                  .run = api_run_fail},
    [API_BULK_CANCEL] = {.name = "cancel",
                         .by_filter = true,
                         .shape = API_SHAPE_BODY,
                         .threads = API_BULK_WORKER,
                         .effect = API_IDEMPOTENT,
                         .kind = OPERATE_CANCEL,
                         .run = api_bulk},
    [API_BULK_RESCHEDULE] = {.name = "reschedule",
                             .by_filter = true,
                             .needs_key = true,
                             .shape = API_SHAPE_BODY,
                             .threads = API_BULK_WORKER,
                             .effect = API_CHANGES,
                             .kind = OPERATE_RESCHEDULE,
                             .run = api_bulk},
    [API_BULK_RETRY] = {.name = "retry",
                        .by_filter = true,
                        .shape = API_SHAPE_BODY,
                        .threads = API_BULK_WORKER,
                        .effect = API_CHANGES,
                        .kind = OPERATE_RETRY,
                        .run = api_bulk},
    [API_BULK_FAIL] = {.name = "fail",
                       .by_filter = true,
                       .is_final = true,
                       .done = "failed by hand",
                       .shape = API_SHAPE_BODY,
                       .threads = API_BULK_WORKER,
                       .effect = API_IDEMPOTENT,
                       .kind = OPERATE_FAIL,
                       .run = api_bulk},
    [API_STATS] = {.name = "stats",
                   .shape = API_SHAPE_PARAMS,
                   .threads = API_STATISTICS,
                   .effect = API_READS},
    [API_DEAD_LIST] = {.name = "dead_list",
                       .shape = API_SHAPE_PARAMS,
                       .threads = API_WORKER,
                       .effect = API_READS,
                       .run = api_dead_list},
    [API_DEAD_GROUPS] = {.name = "dead_groups",
                         .shape = API_SHAPE_PARAMS,
                         .threads = API_WORKER,
                         .effect = API_READS,
                         .run = api_dead_groups},
    [API_DEAD_SHOW] = {.name = "dead_show",
                       .shape = API_SHAPE_ID,
                       .threads = API_WORKER,
                       .effect = API_READS,
                       .run = api_dead_show},
    [API_DEAD_REQUEUE] = {.name = "dead_requeue",
                          .shape = API_SHAPE_BODY,
                          .threads = API_BULK_WORKER,
                          .effect = API_IDEMPOTENT,
                          .run = api_dead_bulk},
    [API_DEAD_DROP] = {.name = "dead_drop",
                       .is_final = true,
                       .done = "dropped",
                       .shape = API_SHAPE_BODY,
                       .threads = API_BULK_WORKER,
                       .effect = API_IDEMPOTENT,
                       .run = api_dead_bulk},
    [API_POLICY_LIST] = {.name = "retry_policy_list",
                         .shape = API_SHAPE_PARAMS,
                         .threads = API_WORKER,
                         .effect = API_READS,
                         .run = api_policy_list},
    [API_POLICY_MATCH] = {.name = "retry_policy_match",
                          .shape = API_SHAPE_PARAMS,
                          .threads = API_WORKER,
                          .effect = API_READS,
                          .run = api_policy_match},
    [API_POLICY_SHOW] = {.name = "retry_policy_show",
                         .id = "pattern",
                         .shape = API_SHAPE_ID,
                         .threads = API_WORKER,
                         .effect = API_READS,
                         .run = api_policy_show},
    [API_POLICY_SET] = {.name = "retry_policy_set",
                        .id = "pattern",
                        .shape = API_SHAPE_ID_BODY,
                        .threads = API_WORKER,
                        .effect = API_IDEMPOTENT,
                        .run = api_policy_set},
    [API_POLICY_REMOVE] = {.name = "retry_policy_remove",
                           .id = "pattern",
                           .shape = API_SHAPE_ID,
                           .threads = API_WORKER,
                           .effect = API_IDEMPOTENT,
                           .run = api_policy_remove},
};
#define OPERATIONS (sizeof operations / sizeof operations[0])

const struct api_operation *api_operation_of(enum api_op op)
{
    return &operations[op];
}

const struct api_operation *api_operation_find(struct bytes name, bool by_filter)
{
    const struct api_operation *found = NULL;
    for (size_t i = 0; i < OPERATIONS; i++)
        if (bytes_equal_str(name, operations[i].name) &&
            (found == NULL || operations[i].by_filter == by_filter))
            found = &operations[i];
    return found;
}

const char *api_operation_names(char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < OPERATIONS && used < size; i++)
        if (!operations[i].by_filter)
            used +=
                (size_t)snprintf(out + used, size - used, "%s%s", used > 0 ? ", " : "", operations[i].name);
    return out;
}

int api_run(struct api_context *c, struct api_request *r, struct err *e)
{
    if (r->op->run == NULL)
        return err_set(e, ERR_BUG, "%s is not done here", r->op->name);
    return r->op->run(c, r, e);
}
