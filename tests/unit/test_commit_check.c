#include "sql/pipeline/commit_check.h"
#include "tests/unit/unit.h"

#include <string.h>

/* A script: what the next offers, look-ups and connects answer. */
enum offered { STORED, BUSY, REFUSED, LOST_BEFORE, LOST_AT_COMMIT, COMMITTED_LOCALLY };
struct pg {
    bool broken;
};
static struct pg session;
static const enum offered *offers;
static const int *finds; /* 2: the database fails */
static size_t offer_count, find_count, offered, found, naps;
static int away; /* so many connects fail */
static bool is_open;

int store_accept(struct pg *c, const struct store_options *o, struct store_item *items, size_t count,
                 struct err *e)
{
    assert_true(offered < offer_count);
    enum offered now = offers[offered++];
    for (size_t i = 0; i < count; i++)
        items[i].result = STORE_ACCEPTED;
    bool sent = now == STORED || now == LOST_AT_COMMIT || now == COMMITTED_LOCALLY;
    if (sent)
        assert_int_equal(o->extra->after(o->extra->ctx, c, e), 0);
    c->broken = now == LOST_BEFORE || now == LOST_AT_COMMIT;
    return now == STORED    ? 0
           : now == BUSY    ? err_set(e, ERR_BUSY, "a lock")
           : now == REFUSED ? err_set(e, ERR_REJECT, "no")
                            : err_set(e, ERR_AWAY, "gone");
}

int store_was_committed(struct pg *c, struct message_id id, struct err *e)
{
    (void)c;
    (void)id;
    assert_true(found < find_count);
    return finds[found++] == 2 ? err_set(e, ERR_AWAY, "gone") : finds[found - 1];
}

bool pg_is_broken(const struct pg *c)
{
    return c->broken;
}

static struct pg *connect_fake(void *ctx, struct err *e)
{
    (void)ctx;
    if (is_open && !session.broken)
        return &session;
    if (away > 0) {
        away--;
        err_set(e, ERR_AWAY, "away");
        return NULL;
    }
    session.broken = false;
    is_open = true;
    return &session;
}

static void close_fake(void *ctx)
{
    (void)ctx;
    is_open = false;
}

static bool nap_fake(void *ctx, int64_t ms)
{
    (void)ctx;
    (void)ms;
    return ++naps < 20;
}

static struct commit_check check;

static int run(const enum offered *o, size_t offers_n, const int *f, size_t finds_n, struct err *e)
{
    static struct store_item item;
    const struct store_options options = {0};
    offers = o;
    offer_count = offers_n;
    finds = f;
    find_count = finds_n;
    offered = found = naps = 0;
    is_open = session.broken = false;
    check = (struct commit_check){.connect = connect_fake,
                                  .close = close_fake,
                                  .nap = nap_fake,
                                  .busy_ms = 60000,
                                  .away_ms = 60000,
                                  .unclear_ms = 60000,
                                  .losses_max = 3};
    memset(&item, 0, sizeof item);
    err_clear(e);
    return commit_check_store(&check, &options, &item, 1, e);
}

#define RUN(offer_list, find_list) run(offer_list, COUNT_OF(offer_list), find_list, COUNT_OF(find_list), &e)
static const int nothing[] = {0};

TEST(test_locks_are_waited_for_and_refusals_are_not)
{
    struct err e;
    const enum offered lock[] = {BUSY, BUSY, STORED}, refused[] = {REFUSED};
    assert_int_equal(RUN(lock, nothing), 0);
    assert_int_equal(naps, 2);
    assert_int_equal(RUN(refused, nothing), -1);
    assert_int_equal(e.kind, ERR_REJECT);
    assert_false(check.unclear);
}

TEST(test_lost_before_the_commit_is_offered_again_without_a_look)
{
    struct err e;
    const enum offered list[] = {LOST_BEFORE, LOST_BEFORE, STORED};
    away = 2;
    assert_int_equal(RUN(list, nothing), 0);
    assert_int_equal(found, 0);
    assert_false(check.unclear);
}

TEST(test_a_lost_commit_is_looked_up)
{
    struct err e;
    const enum offered lost[] = {LOST_AT_COMMIT, STORED}, locally[] = {COMMITTED_LOCALLY};
    const int there[] = {1}, not_there[] = {0}, later[] = {2, 2, 1};
    assert_int_equal(RUN(lost, there), 0);
    assert_int_equal(offered, 1);
    assert_int_equal(RUN(lost, later), 0);
    assert_int_equal(offered, 1);
    assert_int_equal(RUN(lost, not_there), 0);
    assert_int_equal(offered, 2);
    assert_int_equal(RUN(locally, there), 0);
}

TEST(test_a_commit_still_under_way_is_what_refuses_the_second_one)
{
    struct err e;
    const enum offered list[] = {LOST_AT_COMMIT, BUSY, REFUSED};
    const int finds_there[] = {0, 0, 1}, finds_none[] = {0, 0, 0};
    assert_int_equal(RUN(list, finds_there), 0);
    assert_int_equal(offered, 3);
    assert_int_equal(RUN(list, finds_none), -1);
    assert_int_equal(e.kind, ERR_REJECT);
}

TEST(test_it_is_given_up)
{
    struct err e;
    const enum offered lost[] = {LOST_AT_COMMIT}, losses[] = {LOST_BEFORE, LOST_BEFORE, LOST_BEFORE};
    const enum offered never[] = {STORED};
    away = 0;
    int fails[64];
    for (size_t i = 0; i < COUNT_OF(fails); i++)
        fails[i] = 2;
    assert_int_equal(RUN(lost, fails), -1);
    assert_int_equal(e.kind, ERR_AWAY);
    assert_true(check.unclear);
    assert_int_equal(RUN(losses, nothing), -1);
    assert_int_equal(e.kind, ERR_AWAY);
    assert_false(check.unclear);
    away = 1000;
    assert_int_equal(RUN(never, nothing), -1);
    assert_int_equal(e.kind, ERR_AWAY);
    assert_int_equal(offered, 0);
    away = 0;
}
