#include "core/base/clock.h"
#include "gateway/deliver/lease.h"
#include "tests/unit/unit.h"

#define LEASE_MS 8000

TEST(test_time_that_no_clock_counted_is_taken_off_the_lease)
{
    struct lease t;
    lease_open(&t);
    lease_shorten(&t, 1000); /* none was given yet */
    assert_int_equal(lease_instance(&t), 0);
    lease_renew(&t, 7, clock_boottime_ms() + LEASE_MS);
    lease_shorten(&t, LEASE_MS / 4);
    assert_int_equal(lease_instance(&t), 7);
    lease_shorten(&t, LEASE_MS);
    assert_int_equal(lease_instance(&t), 0);
    lease_renew(&t, 7, clock_boottime_ms() + LEASE_MS); /* the heartbeat found that it is still ours */
    assert_int_equal(lease_instance(&t), 7);
    lease_shorten(&t, INT64_MAX);
    assert_int_equal(lease_instance(&t), 0);
}

TEST(test_a_lease_ends_by_itself_or_when_told)
{
    struct lease t;
    lease_open(&t);
    assert_int_equal(lease_instance(&t), 0);
    lease_renew(&t, 7, clock_boottime_ms()); /* the deadline itself is too late */
    assert_int_equal(lease_instance(&t), 0);
    lease_renew(&t, 7, clock_boottime_ms() + LEASE_MS);
    assert_int_equal(lease_instance(&t), 7);
    lease_renew(&t, 8, clock_boottime_ms() + LEASE_MS); /* a new instance, without an end of the old one */
    assert_int_equal(lease_instance(&t), 8);
    lease_end(&t);
    assert_int_equal(lease_instance(&t), 0);
    lease_shorten(&t, 1000);
    assert_int_equal(lease_instance(&t), 0);
}

TEST(test_a_renewal_may_shorten)
{
    struct lease t;
    lease_open(&t);
    lease_renew(&t, 7, clock_boottime_ms() + LEASE_MS);
    lease_renew(&t, 7, clock_boottime_ms() - 1);
    assert_int_equal(lease_instance(&t), 0);
    lease_renew(&t, 7, INT64_MAX);
    lease_shorten(&t, LEASE_MS);
    assert_int_equal(lease_instance(&t), 7);
}
