/* The operations, a row each, in the order in which they are listed: OP(number, name, shape, threads, effect,
 * and what else is not 0), of which api.h makes the numbers and api_run.c the table (api_operation.h
 * says what each field is). A new one goes to the end: Idempotency-Keys are stored with a hash of the number.
 */
#ifndef POSTDATE_GATEWAY_API_API_OPERATION_LIST_H
#define POSTDATE_GATEWAY_API_API_OPERATION_LIST_H

/* clang-format off */
#define API_BY_FILTER(what)  .run = api_bulk, .by_filter = true, .kind = OPERATE_##what
#define API_IN_CELLS(does)   .run = (does), .in_cells = true
#define API_BY_NAME(does)    .run = (does), .id = "name"
#define API_BY_PATTERN(does) .run = (does), .id = "pattern"
#define API_BY_EXCHANGE(does) .run = (does), .id = "exchange"
#define API_OPERATIONS(OP) \
    OP(SCHEDULE,        "schedule",            BODY,    GROUP_COMMIT, KEYED,      .run = NULL)                                        \
    OP(SHOW,            "show",                PARAMS,  WORKER,       READS,      API_IN_CELLS(api_run_show))                         \
    OP(LIST,            "list",                PARAMS,  WORKER,       READS,      .run = api_list)                                    \
    OP(CANCEL,          "cancel",              PARAMS,  WORKER,       IDEMPOTENT, API_IN_CELLS(api_run_cancel))                       \
    OP(RESCHEDULE,      "reschedule",          ID_BODY, WORKER,       CHANGES,    API_IN_CELLS(api_run_reschedule))                   \
    OP(RETRY,           "retry",               ID_BODY, WORKER,       CHANGES,    API_IN_CELLS(api_run_retry))                        \
    OP(FAIL,            "fail",                ID_BODY, WORKER,       IDEMPOTENT, API_IN_CELLS(api_run_fail))                         \
    OP(BULK_CANCEL,     "cancel",              BODY,    BULK_WORKER,  IDEMPOTENT, API_BY_FILTER(CANCEL))                              \
    OP(BULK_RESCHEDULE, "reschedule",          BODY,    BULK_WORKER,  CHANGES,    API_BY_FILTER(RESCHEDULE), .needs_key = true)       \
    OP(BULK_RETRY,      "retry",               BODY,    BULK_WORKER,  CHANGES,    API_BY_FILTER(RETRY))                               \
    OP(BULK_FAIL,       "fail",                BODY,    BULK_WORKER,  IDEMPOTENT, API_BY_FILTER(FAIL))                                \
    OP(STATS,           "stats",               PARAMS,  STATISTICS,   READS,      .run = NULL)                                        \
    OP(DEAD_LIST,       "dead_list",           PARAMS,  WORKER,       READS,      .run = api_dead_list)                               \
    OP(DEAD_GROUPS,     "dead_groups",         PARAMS,  WORKER,       READS,      .run = api_dead_groups)                             \
    OP(DEAD_SHOW,       "dead_show",           ID,      WORKER,       READS,      .run = api_dead_show)                               \
    OP(DEAD_REQUEUE,    "dead_requeue",        BODY,    BULK_WORKER,  IDEMPOTENT, .run = api_dead_bulk, .kind = OPERATE_RETRY)        \
    OP(DEAD_DROP,       "dead_drop",           BODY,    BULK_WORKER,  IDEMPOTENT, .run = api_dead_bulk, .kind = OPERATE_CANCEL)       \
    OP(POLICY_LIST,     "retry_policy_list",   PARAMS,  WORKER,       READS,      .run = api_policy_list)                             \
    OP(POLICY_MATCH,    "retry_policy_match",  PARAMS,  WORKER,       READS,      .run = api_policy_match)                            \
    OP(POLICY_SHOW,     "retry_policy_show",   ID,      WORKER,       READS,      API_BY_PATTERN(api_policy_show))                    \
    OP(POLICY_SET,      "retry_policy_set",    ID_BODY, WORKER,       IDEMPOTENT, API_BY_PATTERN(api_policy_set))                     \
    OP(POLICY_REMOVE,   "retry_policy_remove", ID,      WORKER,       IDEMPOTENT, API_BY_PATTERN(api_policy_remove))                  \
    OP(RECUR_LIST,      "recur_list",          PARAMS,  WORKER,       READS,      .run = api_recur_list)                              \
    OP(RECUR_SHOW,      "recur_show",          ID,      WORKER,       READS,      API_BY_NAME(api_recur_show))                        \
    OP(RECUR_SET,       "recur_set",           ID_BODY, WORKER,       IDEMPOTENT, API_BY_NAME(api_recur_set), .conditional = true)    \
    OP(RECUR_REMOVE,    "recur_remove",        ID,      WORKER,       IDEMPOTENT, API_BY_NAME(api_recur_remove), .conditional = true) \
    OP(RECUR_PAUSE,     "recur_pause",         ID_BODY, WORKER,       IDEMPOTENT, API_BY_NAME(api_recur_pause), .conditional = true)  \
    OP(RECUR_RESUME,    "recur_resume",        ID_BODY, WORKER,       IDEMPOTENT, API_BY_NAME(api_recur_resume), .conditional = true) \
    OP(RECUR_RUN,       "recur_run",           ID_BODY, WORKER,       KEYED,      API_BY_NAME(api_recur_run), .conditional = true)    \
    OP(RECUR_HISTORY,   "recur_history",       ID,      WORKER,       READS,      API_BY_NAME(api_recur_history))                     \
    OP(RECUR_PREVIEW,   "recur_preview",       PARAMS,  WORKER,       READS,      API_BY_NAME(api_recur_preview))                     \
    OP(WHOAMI,          "whoami",              PARAMS,  WORKER,       READS,      .run = api_whoami)                                  \
    OP(SLO,             "slo",                 PARAMS,  WORKER,       READS,      .run = api_slo)                                     \
    OP(FORECAST,        "forecast",            PARAMS,  WORKER,       READS,      .run = api_forecast)                                \
    OP(OVERVIEW,        "overview",            PARAMS,  STATISTICS,   READS,      .run = NULL)                                        \
    OP(RATE_LIST,       "rate_list",           PARAMS,  WORKER,       READS,      .run = api_rate_list)                               \
    OP(RATE_MATCH,      "rate_match",          PARAMS,  WORKER,       READS,      .run = api_rate_match)                              \
    OP(RATE_SHOW,       "rate_show",           ID,      WORKER,       READS,      API_BY_EXCHANGE(api_rate_show))                     \
    OP(RATE_SET,        "rate_set",            ID_BODY, WORKER,       IDEMPOTENT, API_BY_EXCHANGE(api_rate_set))                      \
    OP(RATE_REMOVE,     "rate_remove",         ID,      WORKER,       IDEMPOTENT, API_BY_EXCHANGE(api_rate_remove))                   \
    OP(RATE_PAUSE,      "rate_pause",          ID_BODY, WORKER,       IDEMPOTENT, API_BY_EXCHANGE(api_rate_pause))                    \
    OP(RATE_RESUME,     "rate_resume",         ID_BODY, WORKER,       IDEMPOTENT, API_BY_EXCHANGE(api_rate_resume))
/* clang-format on */

#endif
