#include "core/base/clock.h"
#include "gateway/deliver/exit_table.h"
#include "gateway/deliver/inflight.h"
#include "tests/unit/unit.h"

#include <string.h>
#include <time.h>

#define GRACE 10000
#define NOW INT64_C(1795334400000)

static struct exit_table table;

static int setup(void **state)
{
    (void)state;
    exit_table_init(&table, GRACE);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    exit_table_close(&table);
    return 0;
}

static struct message_id id_of(int n, int64_t due_ms)
{
    uint8_t random[10] = {0};
    memcpy(random + 6, &n, sizeof n);
    return message_id_make(due_ms, random);
}

static enum exit_inserted take(struct message_id id, uint64_t tag, int64_t look_up_ms, int64_t now_ms)
{
    return exit_table_insert(&table, &(struct exit_delivery){.id = id, .tag = tag, .look_up_ms = look_up_ms},
                             now_ms, NULL);
}

static size_t done_tags(uint64_t *tag)
{
    uint64_t tags[10];
    size_t n = exit_table_pop_done(&table, tags, 10);
    *tag = n > 0 ? tags[0] : 0;
    return n;
}

TEST(test_the_ordinary_way)
{
    struct message_id id = id_of(1, NOW);
    struct exit_question q;
    uint64_t tag;
    size_t waiting;
    assert_int_equal(take(id, 7, 0, NOW), EXIT_FRESH);
    assert_int_equal(exit_table_low_ms(&table), NOW);
    assert_int_equal(exit_table_may_publish(&table, id, NOW, NULL), EXIT_PUBLISH);
    exit_table_sent(&table, id);
    assert_int_equal(exit_table_questions(&table, NOW + GRACE / 2, 1, &q, 1), 0);
    exit_table_settling(&table, id, 0);
    assert_int_equal(exit_table_count(&table, true, &waiting), 1);
    assert_int_equal(waiting, 1);
    assert_int_equal(exit_table_questions(&table, NOW + GRACE, 1, &q, 1),
                     0); /* it only waits for the database */
    assert_int_equal(done_tags(&tag), 0);
    exit_table_done(&table, id);
    assert_int_equal(done_tags(&tag), 1);
    assert_int_equal(tag, 7);
    assert_int_equal(exit_table_count(&table, true, &waiting), 0);
    assert_int_equal(exit_table_low_ms(&table), INT64_MAX);
    assert_int_equal(exit_table_may_publish(&table, id, NOW, NULL), EXIT_FORGET);
}

TEST(test_a_proof_takes_the_place_of_what_was_delivered)
{
    struct message_id id = id_of(1, NOW), refused = id_of(2, NOW), fresh = id_of(3, NOW), out[4];
    uint64_t tag;
    take(id, 7, 0, NOW);
    take(refused, 8, 0, NOW);
    take(fresh, 9, 0, NOW);
    exit_table_settling(&table, id, 100);
    exit_table_settling(&table, refused, 0);
    exit_table_settling(&table, fresh, 200);
    assert_int_equal(atomic_load(&table.at_risk), 2); /* the refused one was not delivered */
    assert_int_equal(exit_table_unproven(&table, 99, out, 4), 0);
    assert_int_equal(exit_table_unproven(&table, 100, out, 4), 1);
    assert_true(message_id_equal(out[0], id));
    assert_int_equal(exit_table_unproven(&table, 100, out, 4), 0); /* it is under way */
    exit_table_proved(&table, &id, 1, false);
    assert_int_equal(done_tags(&tag), 0);
    assert_int_equal(exit_table_unproven(&table, 100, out, 4), 1);
    assert_int_equal(atomic_load(&table.at_risk), 2);
    exit_table_proved(&table, &id, 1, true);
    assert_int_equal(atomic_load(&table.at_risk), 1);
    assert_int_equal(done_tags(&tag), 1);
    assert_int_equal(tag, 7);
    assert_int_equal(exit_table_low_ms(&table), NOW); /* it is not settled yet */
    exit_table_done(&table, id);
    assert_int_equal(done_tags(&tag), 0);
    exit_table_deferred(&table, fresh);
    assert_int_equal(atomic_load(&table.at_risk), 0);
    assert_int_equal(exit_table_unproven(&table, 200, out, 4), 1); /* it is proven all the same */
    exit_table_done(&table, fresh);
    exit_table_done(&table, refused);
    assert_int_equal(atomic_load(&table.at_risk), 0);
}

static void take_proof(const struct message_id *ids, size_t n, uint64_t tag, const bool *expected)
{
    bool fresh[4];
    assert_true(exit_table_insert_proof(&table, ids, n, tag, fresh));
    for (size_t i = 0; i < n; i++)
        assert_int_equal(fresh[i], expected[i]);
}

TEST(test_what_has_a_proof_waits_for_nothing)
{
    struct message_id ids[3], out[4];
    size_t waiting;
    for (uint64_t i = 0; i < 3; i++) {
        ids[i] = id_of((int)i + 1, NOW);
        take(ids[i], i + 1, 0, NOW);
        exit_table_settling(&table, ids[i], 100);
    }
    assert_int_equal(exit_table_unproven(&table, 100, out, 2), 2);
    assert_int_equal(exit_table_count(&table, true, &waiting), 3);
    assert_int_equal(waiting, 3);
    exit_table_proved(&table, out, 2, true);
    assert_int_equal(exit_table_count(&table, true, &waiting), 3);
    assert_int_equal(waiting, 1);
    assert_int_equal(exit_table_unproven(&table, 100, out, 4), 1);
}

TEST(test_a_proof_that_comes_back_is_kept_until_all_of_it_is_settled)
{
    const struct message_id ids[] = {id_of(1, NOW), id_of(2, NOW)};
    struct message_id out[2];
    uint64_t tags[4];
    for (uint64_t i = 0; i < 2; i++) {
        take(ids[i], 7 + i, 0, NOW);
        exit_table_settling(&table, ids[i], 100);
    }
    exit_table_unproven(&table, 100, out, 2);
    assert_int_equal(atomic_load(&table.at_risk), 2);
    take_proof(ids, 2, 9, (bool[]){false, false}); /* before its confirm */
    assert_int_equal(atomic_load(&table.at_risk), 0);
    exit_table_proved(&table, out, 2, true);
    assert_int_equal(exit_table_pop_done(&table, tags, 4), 2);
    assert_int_equal(tags[0] + tags[1], 7 + 8);
    take_proof(ids, 2, 10, (bool[]){false, false});
    assert_int_equal(exit_table_pop_done(&table, tags, 4), 1); /* a copy */
    assert_int_equal(tags[0], 10);
    assert_int_equal(take(ids[0], 11, 0, NOW), EXIT_COPY);
    exit_table_done(&table, ids[0]);
    assert_int_equal(exit_table_pop_done(&table, tags, 4), 0);
    exit_table_done(&table, ids[1]);
    assert_int_equal(exit_table_pop_done(&table, tags, 4), 1);
    assert_int_equal(tags[0], 9);
}

TEST(test_a_proof_of_another_gateway_ends_the_look_up)
{
    const struct message_id looked_up = id_of(1, NOW), unknown = id_of(2, NOW), sent = id_of(3, NOW);
    const struct message_id ids[] = {looked_up, unknown, sent};
    struct message_id out[4];
    struct exit_question q;
    uint64_t tag;
    take(looked_up, 1, 1, NOW);
    take(sent, 2, 0, NOW);
    exit_table_sent(&table, sent);
    assert_false(exit_table_has_proof(&table, ids[0]));
    take_proof(ids, 3, 3, (bool[]){true, true, false}); /* who sends it settles it */
    assert_true(exit_table_has_proof(&table, ids[0]));
    assert_false(exit_table_has_proof(&table, ids[2]));
    assert_int_equal(done_tags(&tag), 1);
    assert_int_equal(tag, 1);
    assert_int_equal(exit_table_questions(&table, NOW, 1, &q, 1), 0);
    assert_int_equal(exit_table_unproven(&table, INT64_MAX, out, 4), 0); /* nobody proves what has a proof */
    assert_int_equal(atomic_load(&table.at_risk), 0);
    exit_table_disconnected(&table);
    take_proof(&unknown, 1, 1, (bool[]){false}); /* it came again */
    exit_table_done(&table, unknown);
    exit_table_done(&table, looked_up); /* its proof went with the connection */
    assert_int_equal(done_tags(&tag), 1);
    assert_int_equal(tag, 1);
    exit_table_done(&table, sent);
    assert_int_equal(done_tags(&tag), 0);
}

TEST(test_a_proof_that_comes_during_the_look_up_outlives_the_answer)
{
    const struct message_id proven = id_of(1, NOW), other = id_of(2, NOW);
    struct exit_question q[2];
    uint64_t tag;
    take(proven, 1, 1, NOW);
    take(other, 2, 1, NOW);
    assert_int_equal(exit_table_questions(&table, NOW, 1, q, 2), 2);
    take_proof(&proven, 1, 3, (bool[]){true});
    exit_table_pop_done(&table, &tag, 1);
    exit_table_resolved(&table, proven);
    exit_table_resolved(&table, other);
    assert_true(exit_table_has_proof(&table, proven)); /* whoever has claimed its row asks */
    assert_int_equal(done_tags(&tag), 1);
    assert_int_equal(tag, 2);
    exit_table_done(&table, proven);
    assert_int_equal(done_tags(&tag), 1);
    assert_int_equal(tag, 3);
}

TEST(test_what_came_back_is_not_asked_about_before_its_time)
{
    struct exit_question q;
    assert_int_equal(take(id_of(1, NOW), 1, 5000, NOW), EXIT_LOOKS_UP);
    assert_int_equal(exit_table_questions(&table, NOW, 4999, &q, 1), 0);
    assert_int_equal(exit_table_questions(&table, NOW, 5000, &q, 1), 1);
    assert_int_equal(exit_table_questions(&table, NOW, 9000, &q, 1), 0); /* it is being asked */
}

static struct inflight *content_of(struct message_id id)
{
    static struct inflight_budget budget;
    const struct claimed_row row = {.message = {.id = id, .due_ms = message_id_due_ms(id)}};
    struct inflight *h = inflight_new(&row, 0, &budget);
    assert_non_null(h);
    return h;
}

/* Who is quick enough may ask about it as soon as it is taken: by then its content is there. */
TEST(test_content_that_the_database_may_lack_is_kept_from_the_first_moment_on)
{
    const struct exit_delivery d = {.id = id_of(1, NOW), .tag = 1, .look_up_ms = 1, .whole = true};
    struct inflight *first = content_of(d.id), *h = first, *second;
    struct exit_question q;
    assert_int_equal(exit_table_insert(&table, &d, NOW, &h), EXIT_LOOKS_UP);
    assert_null(h);
    assert_int_equal(exit_table_questions(&table, NOW, 1, &q, 1), 1);
    assert_ptr_equal(q.kept, first);
    second = h = content_of(d.id); /* while it is asked about */
    assert_int_equal(exit_table_may_publish(&table, d.id, NOW, &h), EXIT_FORGET);
    assert_null(h);
    exit_table_unanswered(&table, &q, 2); /* takes the first one, of which there is one too many now */
    assert_int_equal(exit_table_questions(&table, NOW, 2, &q, 1), 1);
    assert_ptr_equal(q.kept, second);
    exit_table_unanswered(&table, &q, 3);
    exit_table_disconnected(&table);
    assert_int_equal(exit_table_questions(&table, NOW, 3, &q, 1), 1);
    inflight_free(q.kept);
    exit_table_resolved(&table, d.id);
}

/* What was taken before the database went back, and is asked about, has none: it comes again. */
TEST(test_content_that_comes_again_is_kept)
{
    struct exit_delivery d = {.id = id_of(1, NOW), .tag = 1, .look_up_ms = 1, .whole = true};
    struct inflight *h = content_of(d.id), *again = h;
    struct exit_question q;
    assert_int_equal(exit_table_insert(&table, &d, NOW, NULL), EXIT_LOOKS_UP);
    assert_int_equal(exit_table_questions(&table, NOW, 1, &q, 1), 1);
    assert_null(q.kept);
    exit_table_unanswered(&table, &q, 2);
    exit_table_disconnected(&table);
    assert_int_equal(exit_table_insert(&table, &d, NOW, &h), EXIT_KNOWN);
    assert_null(h);
    assert_int_equal(exit_table_questions(&table, NOW, 2, &q, 1), 1);
    assert_ptr_equal(q.kept, again);
    inflight_free(q.kept);
    exit_table_resolved(&table, d.id);
}

/* Whether it comes again is judged when the answer is there: by then it may have come. */
TEST(test_what_comes_again_while_it_is_asked_about_outlives_the_answer)
{
    const struct exit_delivery d = {.id = id_of(1, NOW), .tag = 1, .look_up_ms = 1, .whole = true};
    struct inflight *h = content_of(d.id), *again = h;
    struct exit_question q;
    uint64_t tag;
    assert_int_equal(exit_table_insert(&table, &d, NOW, NULL), EXIT_LOOKS_UP);
    exit_table_disconnected(&table);
    assert_int_equal(exit_table_questions(&table, NOW, 1, &q, 1), 1);
    assert_int_equal(exit_table_insert(&table, &d, NOW, &h), EXIT_KNOWN);
    assert_int_equal(exit_table_unknown(&table, d.id, 9), EXIT_UNKNOWN_ASKED);
    assert_int_equal(done_tags(&tag), 0);
    assert_int_equal(exit_table_questions(&table, NOW, 1, &q, 1), 1);
    assert_ptr_equal(q.kept, again);
    exit_table_unanswered(&table, &q, 2);
    exit_table_resolved(&table, d.id);
}

TEST(test_what_the_database_does_not_know_is_wanted_again_or_ends)
{
    const struct exit_delivery whole = {.id = id_of(1, NOW), .tag = 1, .look_up_ms = 1, .whole = true};
    struct exit_question q[2];
    uint64_t tag;
    assert_int_equal(exit_table_insert(&table, &whole, NOW, NULL), EXIT_LOOKS_UP);
    take(id_of(2, NOW), 2, 1, NOW); /* without its content */
    assert_int_equal(exit_table_questions(&table, NOW, 1, q, 2), 2);
    assert_int_equal(exit_table_unknown(&table, whole.id, 9), EXIT_UNKNOWN_WANTED);
    assert_int_equal(exit_table_unknown(&table, id_of(2, NOW), 9), EXIT_UNKNOWN_ENDED);
    assert_int_equal(done_tags(&tag), 1);
    assert_int_equal(tag, 2);
    exit_table_disconnected(&table); /* it went to another gateway */
    assert_int_equal(exit_table_questions(&table, NOW, 9, q, 2), 1);
    assert_int_equal(exit_table_unknown(&table, whole.id, 10), EXIT_UNKNOWN_ENDED);
    assert_int_equal(exit_table_low_ms(&table), INT64_MAX);
}

/* It was refused, and the database has forgotten it: RabbitMQ has it until that is known. */
TEST(test_what_cannot_be_settled_is_looked_up)
{
    const struct exit_delivery d = {.id = id_of(1, NOW), .tag = 1, .whole = true};
    struct exit_question q;
    uint64_t tag;
    assert_int_equal(exit_table_insert(&table, &d, NOW, NULL), EXIT_FRESH);
    exit_table_sent(&table, d.id);
    exit_table_settling(&table, d.id, 5);
    assert_int_equal(atomic_load(&table.at_risk), 1);
    assert_true(exit_table_look_up(&table, d.id));
    assert_int_equal(atomic_load(&table.at_risk), 0);
    assert_int_equal(exit_table_questions(&table, NOW, 1, &q, 1), 1);
    assert_int_equal(exit_table_unknown(&table, d.id, 9), EXIT_UNKNOWN_WANTED);
    assert_int_equal(done_tags(&tag), 0);
    take_proof(&d.id, 1, 3, (bool[]){true});
    assert_false(exit_table_look_up(&table, d.id)); /* another gateway delivered it */
}

/* Its row may be claimed at this moment, for whom it is not sent again: its content is not the table's. */
TEST(test_content_of_what_is_sent_is_kept_unless_it_is_asked_about)
{
    const struct message_id id = id_of(1, NOW);
    struct inflight *h = content_of(id);
    struct exit_question q;
    take(id, 1, 0, NOW);
    exit_table_sent(&table, id);
    assert_int_equal(exit_table_questions(&table, NOW + GRACE, 1000, &q, 1), 1);
    assert_true(q.sent);
    assert_int_equal(exit_table_may_publish(&table, id, INT64_MAX, &h), EXIT_RETURN);
    assert_non_null(h);
    exit_table_unanswered(&table, &q, 1001);
    assert_int_equal(exit_table_may_publish(&table, id, INT64_MAX, &h), EXIT_RETURN);
    assert_null(h);
}

TEST(test_what_is_to_be_looked_up_takes_room_of_the_prefetch)
{
    size_t waiting;
    take(id_of(1, NOW), 1, 1, NOW);
    take(id_of(2, NOW), 2, 0, NOW);
    assert_int_equal(exit_table_count(&table, true, &waiting), 2);
    assert_int_equal(waiting, 1);
    exit_table_count(&table, false, &waiting); /* they are looked up soon */
    assert_int_equal(waiting, 0);
    exit_table_resolved(&table, id_of(1, NOW));
    assert_int_equal(exit_table_count(&table, true, &waiting), 1);
    assert_int_equal(waiting, 0);
}

TEST(test_proofs_that_are_not_settled_take_room_of_the_prefetch)
{
    const struct message_id ids[] = {id_of(1, NOW), id_of(2, NOW), id_of(3, NOW)};
    size_t waiting;
    take_proof(ids, 2, 1, (bool[]){true, true});
    take_proof(ids + 2, 1, 2, (bool[]){true});
    assert_int_equal(exit_table_count(&table, true, &waiting), 3);
    assert_int_equal(waiting, 2);
    take_proof(ids, 3, 3, (bool[]){false, false, false}); /* a copy, which is acknowledged */
    exit_table_done(&table, ids[0]);
    exit_table_count(&table, true, &waiting);
    assert_int_equal(waiting, 2);
    exit_table_done(&table, ids[1]);
    exit_table_done(&table, ids[2]);
    assert_int_equal(exit_table_count(&table, true, &waiting), 0);
    assert_int_equal(waiting, 0);
}

TEST(test_a_proof_of_what_is_being_sent_is_acknowledged)
{
    const struct message_id sent = id_of(1, NOW);
    uint64_t tag;
    take(sent, 1, 0, NOW);
    exit_table_sent(&table, sent);
    take_proof(&sent, 1, 2, (bool[]){false});
    assert_int_equal(done_tags(&tag), 1);
    assert_int_equal(tag, 2);
}

TEST(test_what_is_late_is_looked_up)
{
    struct message_id asked = id_of(1, NOW), noticed = id_of(2, NOW), sent = id_of(3, NOW);
    struct exit_question q[4];
    take(asked, 1, 0, NOW);
    take(noticed, 2, 0, NOW);
    take(sent, 3, 0, NOW);
    exit_table_sent(&table, sent);
    assert_int_equal(exit_table_may_publish(&table, asked, NOW + GRACE / 2 + 1, NULL), EXIT_FORGET);
    size_t n = exit_table_questions(&table, NOW + GRACE / 2 + 1, 1, q, 4);
    assert_int_equal(n, 3);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(q[i].sent, message_id_equal(q[i].id, sent));
    assert_int_equal(exit_table_questions(&table, NOW + GRACE, 1, q, 4), 0); /* they are being asked about */
    assert_int_equal(exit_table_may_publish(&table, noticed, NOW, NULL), EXIT_FORGET);
    assert_int_equal(exit_table_may_publish(&table, sent, NOW, NULL), EXIT_RETURN);
}

static const int64_t late_ms = NOW + GRACE / 2 + 1;

static enum exit_inserted take_late(int n, int64_t due_ms)
{
    return take(id_of(n, due_ms), (uint64_t)n, 0, late_ms);
}

/* It is counted as instance 7, and everybody knows that what was due before NOW is settled. */
static void note_low(void)
{
    exit_table_set_instance(&table, 7);
    exit_table_end_note(&table, 7, NOW - 1000);
    assert_int_equal(exit_table_begin_note(&table, NOW), NOW);
}

TEST(test_what_nobody_can_have_rescued_is_not_looked_up)
{
    struct message_id id = id_of(1, NOW - 10);
    struct exit_question q;
    note_low();
    assert_int_equal(take_late(1, NOW - 10), EXIT_FRESH);
    assert_int_equal(take_late(2, NOW - GRACE - 1), EXIT_LOOKS_UP); /* others may go by that low-water mark */
    assert_int_equal(take(id_of(3, NOW), 3, 0, INT64_MAX), EXIT_LOOKS_UP);
    assert_int_equal(exit_table_questions(&table, late_ms, clock_monotonic_ms(), &q, 1), 1);
    exit_table_resolved(&table, q.id);
    assert_int_equal(exit_table_questions(&table, late_ms, clock_monotonic_ms(), &q, 1), 1);
    exit_table_resolved(&table, q.id);
    assert_int_equal(exit_table_questions(&table, late_ms, clock_monotonic_ms(), &q, 1), 0);
    assert_int_equal(exit_table_may_publish(&table, id, late_ms, NULL), EXIT_PUBLISH);
    exit_table_sent(&table, id);
    /* Its confirm has the time that others have. */
    assert_int_equal(exit_table_questions(&table, late_ms, clock_monotonic_ms(), &q, 1), 0);
    assert_int_equal(exit_table_questions(&table, late_ms, clock_monotonic_ms() + GRACE, &q, 1), 1);
}

/* A note is begun: what others may read of it is known before it is written, and what came before keeps it.
 */
TEST(test_a_low_water_mark_knows_what_came_before)
{
    note_low();
    assert_int_equal(take_late(1, NOW - 10), EXIT_FRESH);
    assert_int_equal(exit_table_begin_note(&table, late_ms), NOW - 10);
    exit_table_done(&table, id_of(1, NOW - 10));
    assert_int_equal(take_late(2, NOW - 10), EXIT_FRESH);
    exit_table_done(&table, id_of(2, NOW - 10));
    assert_int_equal(exit_table_begin_note(&table, NOW + GRACE), NOW + GRACE);
    assert_int_equal(take_late(3, NOW - 10), EXIT_LOOKS_UP);
    assert_int_equal(exit_table_begin_note(&table, NOW), NOW - 10);
    assert_int_equal(take_late(4, NOW - 10), EXIT_LOOKS_UP); /* somebody may still go by the one before */
}

TEST(test_whom_others_do_not_count_looks_up_what_is_late)
{
    assert_int_equal(take_late(1, NOW), EXIT_LOOKS_UP); /* nothing was noted yet */
    note_low();
    assert_int_equal(take_late(2, NOW), EXIT_FRESH);
    exit_table_set_instance(&table, 0); /* its lease is over */
    assert_int_equal(take_late(3, NOW), EXIT_LOOKS_UP);
    assert_int_equal(exit_table_may_publish(&table, id_of(2, NOW), late_ms, NULL), EXIT_FORGET);
    exit_table_set_instance(&table, 8);
    assert_int_equal(take_late(4, NOW), EXIT_LOOKS_UP);
    /* Until its first note others went by their own alone. */
    exit_table_end_note(&table, 8, late_ms);
    assert_int_equal(take_late(5, late_ms - GRACE - 1), EXIT_LOOKS_UP);
    assert_int_equal(take_late(6, late_ms - GRACE), EXIT_FRESH);
    exit_table_end_note(&table, 0, 0); /* another session of the database */
    assert_int_equal(take_late(7, NOW), EXIT_LOOKS_UP);
}

TEST(test_without_an_answer_it_is_asked_again)
{
    struct message_id id = id_of(1, NOW);
    struct exit_question q;
    assert_int_equal(take(id, 1, 1, NOW), EXIT_LOOKS_UP);
    assert_int_equal(exit_table_questions(&table, NOW - 1, 100, &q, 1), 1);
    exit_table_unanswered(&table, &q, 200);
    assert_int_equal(exit_table_questions(&table, NOW - 1, 199, &q, 1), 0);
    assert_int_equal(exit_table_questions(&table, NOW - 1, 200, &q, 1), 1);
}

TEST(test_a_new_connection)
{
    struct message_id here = id_of(1, NOW), sent = id_of(2, NOW), elsewhere = id_of(3, NOW);
    struct exit_question q[3];
    uint64_t tag;
    take(here, 5, 0, NOW);
    take(sent, 6, 0, NOW);
    take(elsewhere, 7, 0, NOW);
    exit_table_sent(&table, sent);
    exit_table_disconnected(&table);
    /* Another gateway may have it by now, and finds out from the database what became of it. */
    assert_int_equal(exit_table_may_publish(&table, sent, NOW, NULL), EXIT_RETURN);
    /* It comes back to this gateway: somebody may have had it meanwhile. */
    assert_int_equal(take(here, 1, 1, NOW), EXIT_KNOWN);
    assert_int_equal(exit_table_may_publish(&table, here, NOW, NULL), EXIT_FORGET);
    /* It was sent before: its outcome is awaited. */
    assert_int_equal(take(sent, 2, 1, NOW), EXIT_KNOWN);
    assert_int_equal(exit_table_may_publish(&table, sent, NOW, NULL), EXIT_PUBLISH);
    /* It did not come back, so another gateway has it. */
    assert_int_equal(exit_table_may_publish(&table, elsewhere, NOW, NULL), EXIT_FORGET);
    assert_int_equal(exit_table_questions(&table, NOW, 1, q, 3), 2);
    exit_table_done(&table, elsewhere);
    assert_int_equal(done_tags(&tag), 0); /* 7 was a tag of the connection before */
    exit_table_done(&table, sent);
    assert_int_equal(done_tags(&tag), 1);
    assert_int_equal(tag, 2);
}

TEST(test_a_second_copy)
{
    struct message_id id = id_of(1, NOW);
    take(id, 1, 0, NOW);
    assert_int_equal(take(id, 2, 0, NOW), EXIT_COPY);
    assert_int_equal(exit_table_may_publish(&table, id, NOW, NULL), EXIT_PUBLISH);
}

TEST(test_thousands)
{
    enum { COUNT = 5000 };
    uint64_t tags[COUNT];
    size_t waiting, done = 0;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < COUNT; i++)
            assert_int_equal(take(id_of(i, NOW + i), (uint64_t)i + 1, 0, NOW), EXIT_FRESH);
        assert_int_equal(exit_table_low_ms(&table), NOW);
        for (int i = COUNT - 1; i >= 0; i--)
            exit_table_done(&table, id_of(i, NOW + i));
        assert_int_equal(exit_table_count(&table, true, &waiting), 0);
        while (done < COUNT)
            done += exit_table_pop_done(&table, tags, 1000);
        assert_int_equal(done, COUNT);
        done = 0;
    }
}

#define MANY 200000

static double cpu_ms(void)
{
    static double last_ms;
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    double before_ms = last_ms;
    last_ms = (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
    return last_ms - before_ms;
}

/* As after an outage: what each step of the threads that look through all has to do, while the publisher
 * waits for the lock. Nothing of it grows with the square of how many there are, or lasts when they are gone.
 */
TEST(test_many_cost_each_look_once)
{
    static struct message_id out[500];
    static struct exit_question q[500];
    size_t n, all = 0, calls = 0;
    for (int i = 0; i < MANY; i++) {
        struct message_id id = id_of(i, NOW + i % 1000);
        take(id, (uint64_t)i + 1, 0, NOW);
        exit_table_settling(&table, id, 100);
    }
    cpu_ms();
    for (; (n = exit_table_unproven(&table, 100, out, 500)) > 0; all += n, calls++)
        exit_table_proved(&table, out, n, true);
    print_message("proving %d, in %zu calls: %.1f ms\n", MANY, calls, cpu_ms());
    assert_int_equal(all, MANY);
    assert_in_range(table.looked_at, MANY, 2 * MANY);
    assert_int_equal(exit_table_low_ms(&table), NOW);
    print_message("the lowest of %d: %.1f ms\n", MANY, cpu_ms());
    for (int i = 0; i < MANY; i++)
        exit_table_done(&table, id_of(i, NOW + i % 1000));
    for (int i = 0; i < MANY; i++)
        take(id_of(i, NOW), (uint64_t)i + 1, 1, NOW);
    cpu_ms();
    table.looked_at = 0;
    for (all = 0; (n = exit_table_questions(&table, NOW, 1, q, 500)) > 0; all += n)
        for (size_t i = 0; i < n; i++)
            exit_table_resolved(&table, q[i].id);
    print_message("looking up %d: %.1f ms\n", MANY, cpu_ms());
    assert_int_equal(all, MANY);
    assert_in_range(table.looked_at, MANY, 2 * MANY);
    take(id_of(1, NOW), 1, 0, NOW);
    table.looked_at = 0;
    cpu_ms();
    assert_int_equal(exit_table_low_ms(&table), NOW);
    exit_table_questions(&table, NOW, 1000, q, 500);
    print_message("one that is left: %.3f ms\n", cpu_ms());
    assert_int_equal(table.looked_at, 1);
}

TEST_EACH(setup, teardown)
