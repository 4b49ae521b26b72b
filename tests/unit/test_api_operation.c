#include "gateway/api/api_operation.h"
#include "tests/unit/unit.h"

#include <string.h>

static void test_each_is_found_by_its_name(void **state)
{
    (void)state;
    for (int i = API_SCHEDULE; i < API_OP_COUNT; i++) {
        const struct api_operation *o = api_operation_of((enum api_op)i);
        assert_non_null(o->name);
        assert_ptr_equal(api_operation_find(bytes_of_str(o->name), o->by_filter), o);
    }
    assert_null(api_operation_find(bytes_of_str("purge"), false));
    assert_null(api_operation_find(bytes_of_str(""), true));
}

/* "filter" is a field that show does not know: it is to say so, not to be unknown itself. */
static void test_what_has_no_filter_is_found_with_one(void **state)
{
    (void)state;
    assert_ptr_equal(api_operation_find(bytes_of_str("show"), true), api_operation_of(API_SHOW));
    assert_ptr_equal(api_operation_find(bytes_of_str("cancel"), true), api_operation_of(API_BULK_CANCEL));
    assert_ptr_equal(api_operation_find(bytes_of_str("cancel"), false), api_operation_of(API_CANCEL));
}

static void test_workers_can_do_what_they_are_given(void **state)
{
    (void)state;
    for (int i = API_SCHEDULE; i < API_OP_COUNT; i++) {
        const struct api_operation *o = api_operation_of((enum api_op)i);
        bool for_workers = o->threads == API_WORKER || o->threads == API_BULK_WORKER;
        assert_int_equal(o->run != NULL, for_workers);
        bool of_dead = i == API_DEAD_REQUEUE || i == API_DEAD_DROP;
        assert_int_equal(o->by_filter || of_dead, o->threads == API_BULK_WORKER);
    }
}

/* Idempotency-Keys are stored with a hash of the number. */
static void test_kinds_are_numbered_as_the_operations_by_filter(void **state)
{
    (void)state;
    for (int i = API_BULK_CANCEL; i <= API_BULK_FAIL; i++)
        assert_int_equal(api_operation_of((enum api_op)i)->kind, i - API_BULK_CANCEL);
}

static void test_names(void **state)
{
    char names[700], few[10];
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_is_found_by_its_name),
        cmocka_unit_test(test_what_has_no_filter_is_found_with_one),
        cmocka_unit_test(test_workers_can_do_what_they_are_given),
        cmocka_unit_test(test_kinds_are_numbered_as_the_operations_by_filter),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
