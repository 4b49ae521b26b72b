#include "core/base/clock.h"
#include "gateway/deliver/exit_table.h"
#include "gateway/deliver/inflight.h"
#include "tests/unit/unit.h"

#include <string.h>
#include <time.h>

#define GRACE 10000
#define NOW INT64_C(1795334400000)

static struct relay_book book;

static int setup(void **state)
{
    (void)state;
    relay_book_init(&book, GRACE);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    relay_book_close(&book);
    return 0;
}

static struct message_id id_of(int n, int64_t due_ms)
{
    uint8_t random[10] = {0};
    memcpy(random + 6, &n, sizeof n);
    return message_id_make(due_ms, random);
}

static enum relay_taken take(struct message_id id, uint64_t tag, int64_t look_up_ms, int64_t now_ms)
{
    return relay_book_take(&book, &(struct relay_delivery){.id = id, .tag = tag, .look_up_ms = look_up_ms},
                           now_ms, NULL);
}

static size_t done_tags(uint64_t *tag)
{
    uint64_t tags[10];
    size_t n = relay_book_take_done(&book, tags, 10);
    *tag = n > 0 ? tags[0] : 0;
    return n;
}

TEST(test_the_ordinary_way)
{
    struct message_id id = id_of(1, NOW);
    struct relay_question q;
    uint64_t tag;
    size_t waiting;
    assert_int_equal(take(id, 7, 0, NOW), RELAY_FRESH);
    assert_int_equal(relay_book_low_ms(&book), NOW);
    assert_int_equal(relay_book_ask(&book, id, NOW, NULL), RELAY_PUBLISH);
    relay_book_sent(&book, id);
    assert_int_equal(relay_book_questions(&book, NOW + GRACE / 2, 1, &q, 1), 0);
    relay_book_settling(&book, id, 0);
    assert_int_equal(relay_book_count(&book, true, &waiting), 1);
    assert_int_equal(waiting, 1);
    assert_int_equal(relay_book_questions(&book, NOW + GRACE, 1, &q, 1),
                     0); /* it only waits for the database */
    assert_int_equal(done_tags(&tag), 0);
    relay_book_done(&book, id);
    assert_int_equal(done_tags(&tag), 1);
    assert_int_equal(tag, 7);
    assert_int_equal(relay_book_count(&book, true, &waiting), 0);
    assert_int_equal(relay_book_low_ms(&book), INT64_MAX);
    assert_int_equal(relay_book_ask(&book, id, NOW, NULL), RELAY_FORGET);
}

TEST(test_a_proof_takes_the_place_of_what_was_delivered)
{
    struct message_id id = id_of(1, NOW), refused = id_of(2, NOW), fresh = id_of(3, NOW), out[4];
    uint64_t tag;
    take(id, 7, 0, NOW);
    take(refused, 8, 0, NOW);
    take(fresh, 9, 0, NOW);
    relay_book_settling(&book, id, 100);
    relay_book_settling(&book, refused, 0);
    relay_book_settling(&book, fresh, 200);
    assert_int_equal(atomic_load(&book.at_risk), 2); /* the refused one was not delivered */
    assert_int_equal(relay_book_unproven(&book, 99, out, 4), 0);
    assert_int_equal(relay_book_unproven(&book, 100, out, 4), 1);
    assert_true(message_id_equal(out[0], id));
    assert_int_equal(relay_book_unproven(&book, 100, out, 4), 0); /* it is under way */
    relay_book_proven(&book, &id, 1, false);
    assert_int_equal(done_tags(&tag), 0);
    assert_int_equal(relay_book_unproven(&book, 100, out, 4), 1);
    assert_int_equal(atomic_load(&book.at_risk), 2);
    relay_book_proven(&book, &id, 1, true);
    assert_int_equal(atomic_load(&book.at_risk), 1);
    assert_int_equal(done_tags(&tag), 1);
    assert_int_equal(tag, 7);
    assert_int_equal(relay_book_low_ms(&book), NOW); /* it is not settled yet */
    relay_book_done(&book, id);
    assert_int_equal(done_tags(&tag), 0);
    relay_book_deferred(&book, fresh);
    assert_int_equal(atomic_load(&book.at_risk), 0);
    assert_int_equal(relay_book_unproven(&book, 200, out, 4), 1); /* it is proven all the same */
    relay_book_done(&book, fresh);
    relay_book_done(&book, refused);
    assert_int_equal(atomic_load(&book.at_risk), 0);
}

static void take_proof(const struct message_id *ids, size_t n, uint64_t tag, const bool *expected)
{
    bool fresh[4];
    assert_true(relay_book_take_proof(&book, ids, n, tag, fresh));
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
        relay_book_settling(&book, ids[i], 100);
    }
    assert_int_equal(relay_book_unproven(&book, 100, out, 2), 2);
    assert_int_equal(relay_book_count(&book, true, &waiting), 3);
    assert_int_equal(waiting, 3);
    relay_book_proven(&book, out, 2, true);
    assert_int_equal(relay_book_count(&book, true, &waiting), 3);
    assert_int_equal(waiting, 1);
    assert_int_equal(relay_book_unproven(&book, 100, out, 4), 1);
}

TEST(test_a_proof_that_comes_back_is_kept_until_all_of_it_is_settled)
{
    const struct message_id ids[] = {id_of(1, NOW), id_of(2, NOW)};
    struct message_id out[2];
    uint64_t tags[4];
    for (uint64_t i = 0; i < 2; i++) {
        take(ids[i], 7 + i, 0, NOW);
        relay_book_settling(&book, ids[i], 100);
    }
    relay_book_unproven(&book, 100, out, 2);
    assert_int_equal(atomic_load(&book.at_risk), 2);
    take_proof(ids, 2, 9, (bool[]){false, false}); /* before its confirm */
    assert_int_equal(atomic_load(&book.at_risk), 0);
    relay_book_proven(&book, out, 2, true);
    assert_int_equal(relay_book_take_done(&book, tags, 4), 2);
    assert_int_equal(tags[0] + tags[1], 7 + 8);
    take_proof(ids, 2, 10, (bool[]){false, false});
    assert_int_equal(relay_book_take_done(&book, tags, 4), 1); /* a copy */
    assert_int_equal(tags[0], 10);
    assert_int_equal(take(ids[0], 11, 0, NOW), RELAY_COPY);
    relay_book_done(&book, ids[0]);
    assert_int_equal(relay_book_take_done(&book, tags, 4), 0);
    relay_book_done(&book, ids[1]);
    assert_int_equal(relay_book_take_done(&book, tags, 4), 1);
    assert_int_equal(tags[0], 9);
}

TEST(test_a_proof_of_another_gateway_ends_the_look_up)
{
    const struct message_id looked_up = id_of(1, NOW), unknown = id_of(2, NOW), sent = id_of(3, NOW);
    const struct message_id ids[] = {looked_up, unknown, sent};
    struct message_id out[4];
    struct relay_question q;
    uint64_t tag;
    take(looked_up, 1, 1, NOW);
    take(sent, 2, 0, NOW);
    relay_book_sent(&book, sent);
    assert_false(relay_book_has_proof(&book, ids[0]));
    take_proof(ids, 3, 3, (bool[]){true, true, false}); /* who sends it settles it */
    assert_true(relay_book_has_proof(&book, ids[0]));
    assert_false(relay_book_has_proof(&book, ids[2]));
    assert_int_equal(done_tags(&tag), 1);
    assert_int_equal(tag, 1);
    assert_int_equal(relay_book_questions(&book, NOW, 1, &q, 1), 0);
    assert_int_equal(relay_book_unproven(&book, INT64_MAX, out, 4), 0); /* nobody proves what has a proof */
    assert_int_equal(atomic_load(&book.at_risk), 0);
    relay_book_disconnected(&book);
    take_proof(&unknown, 1, 1, (bool[]){false}); /* it came again */
    relay_book_done(&book, unknown);
    relay_book_done(&book, looked_up); /* its proof went with the connection */
    assert_int_equal(done_tags(&tag), 1);
    assert_int_equal(tag, 1);
    relay_book_done(&book, sent);
    assert_int_equal(done_tags(&tag), 0);
}

TEST(test_a_proof_that_comes_during_the_look_up_outlives_the_answer)
{
    const struct message_id proven = id_of(1, NOW), other = id_of(2, NOW);
    struct relay_question q[2];
    uint64_t tag;
    take(proven, 1, 1, NOW);
    take(other, 2, 1, NOW);
    assert_int_equal(relay_book_questions(&book, NOW, 1, q, 2), 2);
    take_proof(&proven, 1, 3, (bool[]){true});
    relay_book_take_done(&book, &tag, 1);
    relay_book_answer(&book, proven);
    relay_book_answer(&book, other);
    assert_true(relay_book_has_proof(&book, proven)); /* whoever has claimed its row asks */
    assert_int_equal(done_tags(&tag), 1);
    assert_int_equal(tag, 2);
    relay_book_done(&book, proven);
    assert_int_equal(done_tags(&tag), 1);
    assert_int_equal(tag, 3);
}

TEST(test_what_came_back_is_not_asked_about_before_its_time)
{
    struct relay_question q;
    assert_int_equal(take(id_of(1, NOW), 1, 5000, NOW), RELAY_LOOKS_UP);
    assert_int_equal(relay_book_questions(&book, NOW, 4999, &q, 1), 0);
    assert_int_equal(relay_book_questions(&book, NOW, 5000, &q, 1), 1);
    assert_int_equal(relay_book_questions(&book, NOW, 9000, &q, 1), 0); /* it is being asked */
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
    const struct relay_delivery d = {.id = id_of(1, NOW), .tag = 1, .look_up_ms = 1, .whole = true};
    struct inflight *first = content_of(d.id), *h = first, *second;
    struct relay_question q;
    assert_int_equal(relay_book_take(&book, &d, NOW, &h), RELAY_LOOKS_UP);
    assert_null(h);
    assert_int_equal(relay_book_questions(&book, NOW, 1, &q, 1), 1);
    assert_ptr_equal(q.kept, first);
    second = h = content_of(d.id); /* while it is asked about */
    assert_int_equal(relay_book_ask(&book, d.id, NOW, &h), RELAY_FORGET);
    assert_null(h);
    relay_book_again(&book, &q, 2); /* takes the first one, of which there is one too many now */
    assert_int_equal(relay_book_questions(&book, NOW, 2, &q, 1), 1);
    assert_ptr_equal(q.kept, second);
    relay_book_again(&book, &q, 3);
    relay_book_disconnected(&book);
    assert_int_equal(relay_book_questions(&book, NOW, 3, &q, 1), 1);
    inflight_free(q.kept);
    relay_book_answer(&book, d.id);
}

/* What was taken before the database went back, and is asked about, has none: it comes again. */
TEST(test_content_that_comes_again_is_kept)
{
    struct relay_delivery d = {.id = id_of(1, NOW), .tag = 1, .look_up_ms = 1, .whole = true};
    struct inflight *h = content_of(d.id), *again = h;
    struct relay_question q;
    assert_int_equal(relay_book_take(&book, &d, NOW, NULL), RELAY_LOOKS_UP);
    assert_int_equal(relay_book_questions(&book, NOW, 1, &q, 1), 1);
    assert_null(q.kept);
    relay_book_again(&book, &q, 2);
    relay_book_disconnected(&book);
    assert_int_equal(relay_book_take(&book, &d, NOW, &h), RELAY_KNOWN);
    assert_null(h);
    assert_int_equal(relay_book_questions(&book, NOW, 2, &q, 1), 1);
    assert_ptr_equal(q.kept, again);
    inflight_free(q.kept);
    relay_book_answer(&book, d.id);
}

/* Whether it comes again is judged when the answer is there: by then it may have come. */
TEST(test_what_comes_again_while_it_is_asked_about_outlives_the_answer)
{
    const struct relay_delivery d = {.id = id_of(1, NOW), .tag = 1, .look_up_ms = 1, .whole = true};
    struct inflight *h = content_of(d.id), *again = h;
    struct relay_question q;
    uint64_t tag;
    assert_int_equal(relay_book_take(&book, &d, NOW, NULL), RELAY_LOOKS_UP);
    relay_book_disconnected(&book);
    assert_int_equal(relay_book_questions(&book, NOW, 1, &q, 1), 1);
    assert_int_equal(relay_book_take(&book, &d, NOW, &h), RELAY_KNOWN);
    assert_int_equal(relay_book_unknown(&book, d.id, 9), RELAY_UNKNOWN_ASKED);
    assert_int_equal(done_tags(&tag), 0);
    assert_int_equal(relay_book_questions(&book, NOW, 1, &q, 1), 1);
    assert_ptr_equal(q.kept, again);
    relay_book_again(&book, &q, 2);
    relay_book_answer(&book, d.id);
}

TEST(test_what_the_database_does_not_know_is_wanted_again_or_ends)
{
    const struct relay_delivery whole = {.id = id_of(1, NOW), .tag = 1, .look_up_ms = 1, .whole = true};
    struct relay_question q[2];
    uint64_t tag;
    assert_int_equal(relay_book_take(&book, &whole, NOW, NULL), RELAY_LOOKS_UP);
    take(id_of(2, NOW), 2, 1, NOW); /* without its content */
    assert_int_equal(relay_book_questions(&book, NOW, 1, q, 2), 2);
    assert_int_equal(relay_book_unknown(&book, whole.id, 9), RELAY_UNKNOWN_WANTED);
    assert_int_equal(relay_book_unknown(&book, id_of(2, NOW), 9), RELAY_UNKNOWN_ENDED);
    assert_int_equal(done_tags(&tag), 1);
    assert_int_equal(tag, 2);
    relay_book_disconnected(&book); /* it went to another gateway */
    assert_int_equal(relay_book_questions(&book, NOW, 9, q, 2), 1);
    assert_int_equal(relay_book_unknown(&book, whole.id, 10), RELAY_UNKNOWN_ENDED);
    assert_int_equal(relay_book_low_ms(&book), INT64_MAX);
}

/* It was refused, and the database has forgotten it: RabbitMQ has it until that is known. */
TEST(test_what_cannot_be_settled_is_looked_up)
{
    const struct relay_delivery d = {.id = id_of(1, NOW), .tag = 1, .whole = true};
    struct relay_question q;
    uint64_t tag;
    assert_int_equal(relay_book_take(&book, &d, NOW, NULL), RELAY_FRESH);
    relay_book_sent(&book, d.id);
    relay_book_settling(&book, d.id, 5);
    assert_int_equal(atomic_load(&book.at_risk), 1);
    assert_true(relay_book_look_up(&book, d.id));
    assert_int_equal(atomic_load(&book.at_risk), 0);
    assert_int_equal(relay_book_questions(&book, NOW, 1, &q, 1), 1);
    assert_int_equal(relay_book_unknown(&book, d.id, 9), RELAY_UNKNOWN_WANTED);
    assert_int_equal(done_tags(&tag), 0);
    take_proof(&d.id, 1, 3, (bool[]){true});
    assert_false(relay_book_look_up(&book, d.id)); /* another gateway delivered it */
}

/* Its row may be claimed at this moment, for whom it is not sent again: its content is not the book's. */
TEST(test_content_of_what_is_sent_is_kept_unless_it_is_asked_about)
{
    const struct message_id id = id_of(1, NOW);
    struct inflight *h = content_of(id);
    struct relay_question q;
    take(id, 1, 0, NOW);
    relay_book_sent(&book, id);
    assert_int_equal(relay_book_questions(&book, NOW + GRACE, 1000, &q, 1), 1);
    assert_true(q.sent);
    assert_int_equal(relay_book_ask(&book, id, INT64_MAX, &h), RELAY_RETURN);
    assert_non_null(h);
    relay_book_again(&book, &q, 1001);
    assert_int_equal(relay_book_ask(&book, id, INT64_MAX, &h), RELAY_RETURN);
    assert_null(h);
}

TEST(test_what_is_to_be_looked_up_takes_room_of_the_prefetch)
{
    size_t waiting;
    take(id_of(1, NOW), 1, 1, NOW);
    take(id_of(2, NOW), 2, 0, NOW);
    assert_int_equal(relay_book_count(&book, true, &waiting), 2);
    assert_int_equal(waiting, 1);
    relay_book_count(&book, false, &waiting); /* they are looked up soon */
    assert_int_equal(waiting, 0);
    relay_book_answer(&book, id_of(1, NOW));
    assert_int_equal(relay_book_count(&book, true, &waiting), 1);
    assert_int_equal(waiting, 0);
}

TEST(test_proofs_that_are_not_settled_take_room_of_the_prefetch)
{
    const struct message_id ids[] = {id_of(1, NOW), id_of(2, NOW), id_of(3, NOW)};
    size_t waiting;
    take_proof(ids, 2, 1, (bool[]){true, true});
    take_proof(ids + 2, 1, 2, (bool[]){true});
    assert_int_equal(relay_book_count(&book, true, &waiting), 3);
    assert_int_equal(waiting, 2);
    take_proof(ids, 3, 3, (bool[]){false, false, false}); /* a copy, which is acknowledged */
    relay_book_done(&book, ids[0]);
    relay_book_count(&book, true, &waiting);
    assert_int_equal(waiting, 2);
    relay_book_done(&book, ids[1]);
    relay_book_done(&book, ids[2]);
    assert_int_equal(relay_book_count(&book, true, &waiting), 0);
    assert_int_equal(waiting, 0);
}

TEST(test_a_proof_of_what_is_being_sent_is_acknowledged)
{
    const struct message_id sent = id_of(1, NOW);
    uint64_t tag;
    take(sent, 1, 0, NOW);
    relay_book_sent(&book, sent);
    take_proof(&sent, 1, 2, (bool[]){false});
    assert_int_equal(done_tags(&tag), 1);
    assert_int_equal(tag, 2);
}

TEST(test_what_is_late_is_looked_up)
{
    struct message_id asked = id_of(1, NOW), noticed = id_of(2, NOW), sent = id_of(3, NOW);
    struct relay_question q[4];
    take(asked, 1, 0, NOW);
    take(noticed, 2, 0, NOW);
    take(sent, 3, 0, NOW);
    relay_book_sent(&book, sent);
    assert_int_equal(relay_book_ask(&book, asked, NOW + GRACE / 2 + 1, NULL), RELAY_FORGET);
    size_t n = relay_book_questions(&book, NOW + GRACE / 2 + 1, 1, q, 4);
    assert_int_equal(n, 3);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(q[i].sent, message_id_equal(q[i].id, sent));
    assert_int_equal(relay_book_questions(&book, NOW + GRACE, 1, q, 4), 0); /* they are being asked about */
    assert_int_equal(relay_book_ask(&book, noticed, NOW, NULL), RELAY_FORGET);
    assert_int_equal(relay_book_ask(&book, sent, NOW, NULL), RELAY_RETURN);
}

static const int64_t late_ms = NOW + GRACE / 2 + 1;

static enum relay_taken take_late(int n, int64_t due_ms)
{
    return take(id_of(n, due_ms), (uint64_t)n, 0, late_ms);
}

/* It is counted as instance 7, and everybody knows that what was due before NOW is settled. */
static void note_low(void)
{
    relay_book_set_instance(&book, 7);
    relay_book_end_note(&book, 7, NOW - 1000);
    assert_int_equal(relay_book_begin_note(&book, NOW), NOW);
}

TEST(test_what_nobody_can_have_rescued_is_not_looked_up)
{
    struct message_id id = id_of(1, NOW - 10);
    struct relay_question q;
    note_low();
    assert_int_equal(take_late(1, NOW - 10), RELAY_FRESH);
    assert_int_equal(take_late(2, NOW - GRACE - 1),
                     RELAY_LOOKS_UP); /* others may go by that low-water mark */
    assert_int_equal(take(id_of(3, NOW), 3, 0, INT64_MAX), RELAY_LOOKS_UP);
    assert_int_equal(relay_book_questions(&book, late_ms, clock_monotonic_ms(), &q, 1), 1);
    relay_book_answer(&book, q.id);
    assert_int_equal(relay_book_questions(&book, late_ms, clock_monotonic_ms(), &q, 1), 1);
    relay_book_answer(&book, q.id);
    assert_int_equal(relay_book_questions(&book, late_ms, clock_monotonic_ms(), &q, 1), 0);
    assert_int_equal(relay_book_ask(&book, id, late_ms, NULL), RELAY_PUBLISH);
    relay_book_sent(&book, id);
    /* Its confirm has the time that others have. */
    assert_int_equal(relay_book_questions(&book, late_ms, clock_monotonic_ms(), &q, 1), 0);
    assert_int_equal(relay_book_questions(&book, late_ms, clock_monotonic_ms() + GRACE, &q, 1), 1);
}

/* A note is begun: what others may read of it is known before it is written, and what came before keeps it.
 */
TEST(test_a_low_water_mark_knows_what_came_before)
{
    note_low();
    assert_int_equal(take_late(1, NOW - 10), RELAY_FRESH);
    assert_int_equal(relay_book_begin_note(&book, late_ms), NOW - 10);
    relay_book_done(&book, id_of(1, NOW - 10));
    assert_int_equal(take_late(2, NOW - 10), RELAY_FRESH);
    relay_book_done(&book, id_of(2, NOW - 10));
    assert_int_equal(relay_book_begin_note(&book, NOW + GRACE), NOW + GRACE);
    assert_int_equal(take_late(3, NOW - 10), RELAY_LOOKS_UP);
    assert_int_equal(relay_book_begin_note(&book, NOW), NOW - 10);
    assert_int_equal(take_late(4, NOW - 10), RELAY_LOOKS_UP); /* somebody may still go by the one before */
}

TEST(test_whom_others_do_not_count_looks_up_what_is_late)
{
    assert_int_equal(take_late(1, NOW), RELAY_LOOKS_UP); /* nothing was noted yet */
    note_low();
    assert_int_equal(take_late(2, NOW), RELAY_FRESH);
    relay_book_set_instance(&book, 0); /* its lease is over */
    assert_int_equal(take_late(3, NOW), RELAY_LOOKS_UP);
    assert_int_equal(relay_book_ask(&book, id_of(2, NOW), late_ms, NULL), RELAY_FORGET);
    relay_book_set_instance(&book, 8);
    assert_int_equal(take_late(4, NOW), RELAY_LOOKS_UP);
    /* Until its first note others went by their own alone. */
    relay_book_end_note(&book, 8, late_ms);
    assert_int_equal(take_late(5, late_ms - GRACE - 1), RELAY_LOOKS_UP);
    assert_int_equal(take_late(6, late_ms - GRACE), RELAY_FRESH);
    relay_book_end_note(&book, 0, 0); /* another session of the database */
    assert_int_equal(take_late(7, NOW), RELAY_LOOKS_UP);
}

TEST(test_without_an_answer_it_is_asked_again)
{
    struct message_id id = id_of(1, NOW);
    struct relay_question q;
    assert_int_equal(take(id, 1, 1, NOW), RELAY_LOOKS_UP);
    assert_int_equal(relay_book_questions(&book, NOW - 1, 100, &q, 1), 1);
    relay_book_again(&book, &q, 200);
    assert_int_equal(relay_book_questions(&book, NOW - 1, 199, &q, 1), 0);
    assert_int_equal(relay_book_questions(&book, NOW - 1, 200, &q, 1), 1);
}

TEST(test_a_new_connection)
{
    struct message_id here = id_of(1, NOW), sent = id_of(2, NOW), elsewhere = id_of(3, NOW);
    struct relay_question q[3];
    uint64_t tag;
    take(here, 5, 0, NOW);
    take(sent, 6, 0, NOW);
    take(elsewhere, 7, 0, NOW);
    relay_book_sent(&book, sent);
    relay_book_disconnected(&book);
    /* Another gateway may have it by now, and finds out from the database what became of it. */
    assert_int_equal(relay_book_ask(&book, sent, NOW, NULL), RELAY_RETURN);
    /* It comes back to this gateway: somebody may have had it meanwhile. */
    assert_int_equal(take(here, 1, 1, NOW), RELAY_KNOWN);
    assert_int_equal(relay_book_ask(&book, here, NOW, NULL), RELAY_FORGET);
    /* It was sent before: its outcome is awaited. */
    assert_int_equal(take(sent, 2, 1, NOW), RELAY_KNOWN);
    assert_int_equal(relay_book_ask(&book, sent, NOW, NULL), RELAY_PUBLISH);
    /* It did not come back, so another gateway has it. */
    assert_int_equal(relay_book_ask(&book, elsewhere, NOW, NULL), RELAY_FORGET);
    assert_int_equal(relay_book_questions(&book, NOW, 1, q, 3), 2);
    relay_book_done(&book, elsewhere);
    assert_int_equal(done_tags(&tag), 0); /* 7 was a tag of the connection before */
    relay_book_done(&book, sent);
    assert_int_equal(done_tags(&tag), 1);
    assert_int_equal(tag, 2);
}

TEST(test_a_second_copy)
{
    struct message_id id = id_of(1, NOW);
    take(id, 1, 0, NOW);
    assert_int_equal(take(id, 2, 0, NOW), RELAY_COPY);
    assert_int_equal(relay_book_ask(&book, id, NOW, NULL), RELAY_PUBLISH);
}

TEST(test_thousands)
{
    enum { COUNT = 5000 };
    uint64_t tags[COUNT];
    size_t waiting, done = 0;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < COUNT; i++)
            assert_int_equal(take(id_of(i, NOW + i), (uint64_t)i + 1, 0, NOW), RELAY_FRESH);
        assert_int_equal(relay_book_low_ms(&book), NOW);
        for (int i = COUNT - 1; i >= 0; i--)
            relay_book_done(&book, id_of(i, NOW + i));
        assert_int_equal(relay_book_count(&book, true, &waiting), 0);
        while (done < COUNT)
            done += relay_book_take_done(&book, tags, 1000);
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
    static struct relay_question q[500];
    size_t n, all = 0, calls = 0;
    for (int i = 0; i < MANY; i++) {
        struct message_id id = id_of(i, NOW + i % 1000);
        take(id, (uint64_t)i + 1, 0, NOW);
        relay_book_settling(&book, id, 100);
    }
    cpu_ms();
    for (; (n = relay_book_unproven(&book, 100, out, 500)) > 0; all += n, calls++)
        relay_book_proven(&book, out, n, true);
    print_message("proving %d, in %zu calls: %.1f ms\n", MANY, calls, cpu_ms());
    assert_int_equal(all, MANY);
    assert_in_range(book.looked_at, MANY, 2 * MANY);
    assert_int_equal(relay_book_low_ms(&book), NOW);
    print_message("the lowest of %d: %.1f ms\n", MANY, cpu_ms());
    for (int i = 0; i < MANY; i++)
        relay_book_done(&book, id_of(i, NOW + i % 1000));
    for (int i = 0; i < MANY; i++)
        take(id_of(i, NOW), (uint64_t)i + 1, 1, NOW);
    cpu_ms();
    book.looked_at = 0;
    for (all = 0; (n = relay_book_questions(&book, NOW, 1, q, 500)) > 0; all += n)
        for (size_t i = 0; i < n; i++)
            relay_book_answer(&book, q[i].id);
    print_message("looking up %d: %.1f ms\n", MANY, cpu_ms());
    assert_int_equal(all, MANY);
    assert_in_range(book.looked_at, MANY, 2 * MANY);
    take(id_of(1, NOW), 1, 0, NOW);
    book.looked_at = 0;
    cpu_ms();
    assert_int_equal(relay_book_low_ms(&book), NOW);
    relay_book_questions(&book, NOW, 1000, q, 500);
    print_message("one that is left: %.3f ms\n", cpu_ms());
    assert_int_equal(book.looked_at, 1);
}

TEST_EACH(setup, teardown)
