#include "gateway/program/once.h"
#include "tests/unit/unit.h"

#define NOW INT64_C(1700000000000)

static struct once_rule rule(void)
{
    return (struct once_rule){.lead_ms = 500, .least_ahead_ms = 2000};
}

/* Everything is fine, nothing is there, and nothing gets on. */
static struct once_facts idle(int64_t clock_ms)
{
    return (struct once_facts){.clock_ms = clock_ms,
                               .now_ms = NOW + clock_ms,
                               .seen = true,
                               .rests = (unsigned)clock_ms / 100,
                               .relaying = true,
                               .ping_ms = NOW + clock_ms,
                               .relay_low_ms = INT64_MAX,
                               .hands_over = true};
}

/* Judges facts that last, a look each 100 ms; when it was done, or -1. */
static int64_t done_at(struct once_rule *r, int64_t from_ms, int64_t until_ms,
                       void (*change)(struct once_facts *f))
{
    for (int64_t ms = from_ms; ms <= until_ms; ms += 100) {
        struct once_facts f = idle(ms);
        if (change)
            change(&f);
        if (once_rule_judge(r, &f) == ONCE_DONE)
            return ms;
    }
    return -1;
}

TEST(test_nothing_to_do)
{
    struct once_rule r = rule();
    int64_t done_ms = done_at(&r, 100, 5000, NULL);
    assert_in_range(done_ms, 300, 600);
    assert_int_equal(r.accepted_ms, NOW + done_ms - 100);
    assert_true(r.due_ms > r.accepted_ms + r.least_ahead_ms);
}

static void unseen(struct once_facts *f)
{
    f->seen = false;
}
static void unread(struct once_facts *f)
{
    f->ready = 1;
}
static void ordered(struct once_facts *f)
{
    f->control_requests = 1;
}
static void behind(struct once_facts *f)
{
    f->ping_ms = NOW;
}
static void due(struct once_facts *f)
{
    f->due = 1;
}
static void lost(struct once_facts *f)
{
    f->lost = 1;
}
static void waiting(struct once_facts *f)
{
    f->waiting = 1;
}
static void relayed(struct once_facts *f)
{
    f->relay_low_ms = NOW;
}

TEST(test_each_thing_is_waited_for)
{
    void (*const all[])(struct once_facts *) = {unseen, unread, ordered, behind, due, lost, waiting, relayed};
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        struct once_rule r = rule();
        assert_int_equal(done_at(&r, 100, 20000, all[i]), -1);
        assert_in_range(done_at(&r, 20100, 22000, NULL), 20100, 20600);
    }
}

static void full(struct once_facts *f)
{
    f->waiting = 7;
    f->hands_over = false;
}
static void unread_exit(struct once_facts *f)
{
    f->relaying = false;
    f->ping_ms = 0;
}

TEST(test_what_cannot_be_done_is_not_waited_for)
{
    struct once_rule a = rule(), b = rule();
    assert_in_range(done_at(&a, 100, 5000, full), 300, 600);
    assert_in_range(done_at(&b, 100, 5000, unread_exit), 300, 600);
}

/* The intake never rests, and the relay always has what is due in a moment. */
static void stream(struct once_facts *f)
{
    f->rests = 0;
    f->progress = (uint64_t)f->clock_ms;
    f->relay_low_ms = f->now_ms + 400;
}

TEST(test_a_steady_stream_does_not_keep_it)
{
    struct once_rule r = rule();
    assert_in_range(done_at(&r, 100, 60000, stream), 5000, 10000);
}

TEST(test_what_came_before_the_queue_was_seen_empty_is_no_rest)
{
    struct once_rule r = rule();
    struct once_facts f = idle(1000);
    once_rule_judge(&r, &f);
    f.clock_ms += 100;
    f.rests++; /* that wait may have begun before */
    once_rule_judge(&r, &f);
    assert_int_equal(r.accepted_ms, 0);
    f.rests++;
    once_rule_judge(&r, &f);
    assert_int_not_equal(r.accepted_ms, 0);
}

TEST(test_patience_ends)
{
    struct once_rule r = rule();
    struct once_facts f = idle(1000);
    f.due = 1;
    assert_int_equal(once_rule_judge(&r, &f), ONCE_GO_ON);
    f.clock_ms += ONCE_PATIENCE_MS;
    assert_int_equal(once_rule_judge(&r, &f), ONCE_GO_ON); /* a message may wait for its millisecond */
    f.progress++;
    f.clock_ms += r.lead_ms;
    assert_int_equal(once_rule_judge(&r, &f), ONCE_GO_ON);
    f.clock_ms += ONCE_PATIENCE_MS + r.lead_ms;
    assert_int_equal(once_rule_judge(&r, &f), ONCE_STUCK);
    f.progress++; /* of the other server, perhaps */
    f.away_ms = ONCE_PATIENCE_MS;
    assert_int_equal(once_rule_judge(&r, &f), ONCE_STUCK);
}

TEST(test_before_the_clock_is_known)
{
    struct once_rule r = rule();
    struct once_facts f = {.clock_ms = 5, .seen = true};
    for (int i = 0; i < 100; i++)
        assert_int_equal(once_rule_judge(&r, &f), ONCE_GO_ON);
    assert_int_equal(r.accepted_ms, 0);
}
