/* What PostgreSQL answers is what was asked for, or an error: never read beyond its end, never left unset.
 * The answers are libpq's own. */
#include "sql/connection/pg_internal.h"
#include "tests/unit/unit.h"

#include <string.h>

/* One row with one binary value; len < 0: no row. */
static PGresult *answer(Oid type, const char *value, int len)
{
    PGresult *r = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    PGresAttDesc column = {
        .name = (char *)(uintptr_t) "n", .format = 1, .typid = type, .typlen = -1, .atttypmod = -1};
    assert_int_equal(PQsetResultAttrs(r, 1, &column), 1);
    if (len >= 0)
        assert_int_equal(PQsetvalue(r, 0, 0, (char *)(uintptr_t)value, len), 1);
    return r;
}

TEST(test_values_have_the_size_of_their_type)
{
    static const struct {
        Oid type;
        int size;
    } types[] = {{16, 1}, {20, 8}, {23, 4}, {701, 8}, {1184, 8}, {2950, 16}};
    for (size_t i = 0; i < COUNT_OF(types); i++)
        for (int len = 0; len <= 17; len++) {
            PGresult *r = answer(types[i].type, "12345678901234567", len);
            assert_int_equal(pg_misfit(r), len == types[i].size ? -1 : 0);
            PQclear(r);
        }
    PGresult *text = answer(25, "12345", 5);
    assert_int_equal(pg_misfit(text), -1);
    PQclear(text);
}

TEST(test_a_value_of_another_size_is_an_error)
{
    int32_t four = 7;
    int64_t eight = 7;
    struct err e;
    assert_int_equal(pg_take(answer(20, "\0\0\0\0\0\0\0\1", 8), PG_ROW(PG_TO(four)), NULL, &e), -1);
    assert_string_equal(e.text, "PostgreSQL answered with 8 bytes in column 1 of 1 instead of 4");
    assert_int_equal(pg_take(answer(23, "\0\0\0\1", 4), PG_ROW(PG_TO(eight)), NULL, &e), -1);
    assert_int_equal(pg_take(answer(23, "\0\0\0\1", 4), PG_ROW(PG_TO(four), PG_TO(eight)), NULL, &e), -1);
    assert_int_equal(pg_take(answer(23, "\0\0\0\1", 4), PG_ROW(PG_TO(four)), NULL, &e), 1);
    assert_int_equal(four, 1);
    assert_int_equal(eight, 7);
    assert_int_equal(pg_take(answer(23, NULL, -1), PG_ROW(PG_TO(four)), NULL, &e), 0);
}

TEST(test_a_short_value_is_not_read_beyond_its_end)
{
    for (int len = 0; len < 16; len++) {
        PGresult *r = answer(17, "\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1", len);
        assert_int_equal(pg_int4(r, 0, 0), len == 4 ? 0x01010101 : 0);
        assert_int_equal(pg_int8(r, 0, 0), len == 8 ? 0x0101010101010101 : 0);
        assert_int_equal(pg_bool(r, 0, 0), len == 1);
        assert_int_equal(pg_id(r, 0, 0).b[0], 0);
        PQclear(r);
    }
}

TEST(test_parameters_can_be_sent_again)
{
    const struct bytes names[] = {bytes_of("a", 1), bytes_of("", 0)};
    const int64_t numbers[] = {1, -1};
    PG_PARAMS(p) = {{as_texts(names, 2), as_null(), as_int8s(numbers, 2)}};
    struct buf *ids = pg_add_array(&p, PG_OID_UUID, 1);
    pg_array_id(ids, (struct message_id){{7}});
    for (int time = 0; time < 2; time++) {
        struct err e;
        const char *data[PG_PARAMS_MAX];
        int lengths[PG_PARAMS_MAX];
        PG_PARAMS(lists) = {0};
        assert_int_equal(pg_params_list(&p, &lists, data, lengths, &e), 4);
        assert_int_equal(lengths[0], 20 + 4 + 1 + 4);
        assert_memory_equal(data[0] + 20, "\0\0\0\1a\0\0\0\0", 9);
        assert_null(data[1]);
        assert_int_equal(lengths[2], 20 + 2 * 12);
        assert_memory_equal(data[2] + 20, "\0\0\0\10\0\0\0\0\0\0\0\1", 12);
        assert_memory_equal(data[2] + 36, "\377\377\377\377\377\377\377\377", 8);
        assert_int_equal(lengths[3], 20 + 4 + 16);
        assert_int_equal(data[3][24], 7);
    }
}
