/* What every unit test includes, once: cmocka with the headers that it wants first, and the program around
 * the tests of a file. */
#ifndef POSTDATE_TESTS_UNIT_H
#define POSTDATE_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

static struct {
    struct CMUnitTest tests[100];
    size_t count;
    CMFixtureFunction each[2], all[2]; /* before and after each test, and all of them */
} unit;

/* TEST(test_name) { … } is a test: those of a file run in their order. `state` is cmocka's. */
#define TEST(name)                                                                                           \
    static void name(void **state);                                                                          \
    __attribute__((constructor)) static void add_##name(void)                                                \
    {                                                                                                        \
        unit.tests[unit.count++] = (struct CMUnitTest){#name, name, NULL, NULL, NULL};                       \
    }                                                                                                        \
    static void name(__attribute__((unused)) void **state)

/* Before and after each test of the file; NULL: nothing. Or once, before the first and after the last one. */
#define TEST_EACH(before, after) TEST_FIXTURE(each, before, after)
#define TEST_ALL(before, after) TEST_FIXTURE(all, before, after)
#define TEST_FIXTURE(which, before, after)                                                                   \
    __attribute__((constructor)) static void set_##which(void)                                               \
    {                                                                                                        \
        unit.which[0] = (before);                                                                            \
        unit.which[1] = (after);                                                                             \
    }

int main(void)
{
    for (size_t i = 0; i < unit.count; i++) {
        unit.tests[i].setup_func = unit.each[0];
        unit.tests[i].teardown_func = unit.each[1];
    }
    return _cmocka_run_group_tests("tests", unit.tests, unit.count, unit.all[0], unit.all[1]);
}

#endif
