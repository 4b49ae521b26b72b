/* Who gives way where requests wait for locks. */
#include "core/base/clock.h"
#include "gateway/ops/api_operation.h"
#include "gateway/ops/executor_park.h"
#include "tests/unit/unit.h"

#include <string.h>

#define BODY ((size_t)60 * 1024)
#define ROOM 96 /* requests of that size */

static const struct api_scope scopes[] = {{.principal = "a"}, {.principal = "b"}};
static uint8_t body[BODY];
static size_t done;

static void on_done(struct api_request *r)
{
    assert_int_equal(r->answer.problem, API_OVERLOADED);
    api_answer_close(&r->answer);
    done++;
}

static struct api_request request_of(int caller, uint64_t name)
{
    static const struct api_operation op = {.name = "x"};
    struct api_request r = {
        .op = &op, .scope = &scopes[caller], .body = bytes_of(body, BODY), .names = {name}, .done = on_done};
    r.caller = api_caller(&r);
    api_answer_open(&r.answer);
    return r;
}

/* All of caller a's: behind one lock, or each for its own. */
static void fill(struct executor_park *p, struct api_request *r, bool behind)
{
    for (size_t i = 0; i < ROOM; i++) {
        r[i] = request_of(0, behind ? 1 : i + 1);
        r[i].give_up_ms = clock_monotonic_ms() + 3000 + (int64_t)i;
        enum executor_parked parked = executor_park_follow(p, &r[i]);
        if (parked == EXECUTOR_PARK_NOT)
            parked = executor_park_put(p, &r[i], r[i].names[0]);
        assert_int_equal(parked, EXECUTOR_PARK_WAITS);
    }
    assert_int_equal(p->count, ROOM);
}

static void give_way(bool behind)
{
    struct executor_park p = {0};
    static struct api_request r[ROOM];
    struct api_request more = request_of(0, 1000), other = request_of(1, 2000);
    done = 0;
    fill(&p, r, behind);
    assert_int_equal(executor_park_put(&p, &more, 1000), EXECUTOR_PARK_REFUSED);
    assert_int_equal(executor_park_put(&p, &other, 2000), EXECUTOR_PARK_WAITS);
    assert_int_equal(done, 1);
    assert_int_equal(r[0].answer.problem, API_OVERLOADED); /* the oldest */
    assert_int_equal(p.count, ROOM);
    struct api_request follower = request_of(1, behind ? 1 : 3);
    assert_int_equal(executor_park_follow(&p, &follower), EXECUTOR_PARK_WAITS);
    assert_int_equal(done, 2);
    assert_int_equal(p.count, ROOM);
    for (size_t i = 2; i < ROOM; i++)
        api_answer_close(&r[i].answer);
    api_answer_close(&more.answer);
}

TEST(test_one_behind_the_other)
{
    give_way(true);
}

TEST(test_each_for_a_lock_of_its_own)
{
    give_way(false);
}
