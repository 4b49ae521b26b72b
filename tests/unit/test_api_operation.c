#include "gateway/ops/api_operation.h"
#include "tests/unit/unit.h"

#include <string.h>

static const struct api_operation *find(const char *request)
{
    json_t *o = json_loads(request, 0, NULL);
    const struct api_operation *op = api_operation_find(o);
    json_decref(o);
    return op;
}

TEST(test_each_is_found_by_its_name_and_fields)
{
    char request[200];
    for (const struct api_operation *op = api_operations; op->name != NULL; op++) {
        struct bytes id = api_operation_id(op);
        snprintf(request, sizeof request, "{\"op\":\"%s\"%s%.*s%s}", op->name, id.len > 0 ? ",\"" : "",
                 (int)id.len, (const char *)id.data,
                 id.len > 0                       ? "\":\"x\""
                 : op->threads == API_BULK_WORKER ? ",\"filter\":{}"
                                                  : "");
        assert_ptr_equal(find(request), op);
    }
    assert_null(find("{\"op\":\"purge\"}"));
    assert_null(find("{\"op\":\"\",\"filter\":{}}"));
    assert_null(find("{\"op\":5}"));
    assert_null(find("{}"));
}

/* "filter" is a field that show does not know: it is to say so, not to be unknown itself. */
TEST(test_what_fits_best_is_found)
{
    assert_string_equal(find("{\"op\":\"show\",\"filter\":{}}")->name, "show");
    assert_string_equal(find("{\"op\":\"cancel\",\"filter\":{},\"id\":\"x\"}")->path, "/v1/messages:cancel");
    assert_string_equal(find("{\"op\":\"cancel\",\"id\":null}")->path, "/v1/messages/{id}");
    assert_string_equal(find("{\"op\":\"cancel\"}")->path, "/v1/messages");
    assert_string_equal(find("{\"op\":\"retry\"}")->path, "/v1/messages/{id}:retry");
    assert_string_equal(find("{\"op\":\"dead_drop\",\"ids\":[]}")->path, "/v1/dead:drop");
}

TEST(test_workers_can_do_what_they_are_given)
{
    for (const struct api_operation *op = api_operations; op->name != NULL; op++) {
        bool for_workers = op->threads == API_WORKER || op->threads == API_BULK_WORKER;
        assert_int_equal(op->run != NULL, for_workers);
        assert_true(!op->empty || api_operation_has_body(op));
    }
}

TEST(test_names)
{
    char names[700], few[10];
    assert_string_equal(api_operation_names(names, sizeof names),
                        "schedule, show, list, cancel, reschedule, retry, fail, stats, dead_list, "
                        "dead_groups, dead_show, dead_requeue, dead_drop, retry_policy_list, "
                        "retry_policy_match, retry_policy_show, retry_policy_set, retry_policy_remove, "
                        "recur_list, recur_show, recur_set, recur_remove, recur_pause, recur_resume, "
                        "recur_run, recur_history, recur_preview, whoami, slo, "
                        "forecast, overview, rate_list, rate_match, rate_show, rate_set, rate_remove, "
                        "rate_pause, rate_resume");
    assert_string_equal(api_operation_names(few, sizeof few), "schedule,");
}
