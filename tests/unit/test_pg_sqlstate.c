#include "sql/connection/pg_internal.h"
#include "tests/unit/unit.h"

/* What PostgreSQL 15 sends with the warning, whatever its language. */
TEST(test_a_commit_that_is_only_local)
{
    assert_true(pg_is_local_commit("01000", "SyncRepWaitForLSN"));
    assert_true(pg_is_local_commit("57P01", "SyncRepWaitForLSN"));
    assert_true(pg_is_local_commit("01000", NULL)); /* a proxy that drops the name */
    assert_true(pg_is_local_commit("57P01", NULL));
}

TEST(test_other_warnings)
{
    assert_false(pg_is_local_commit("01000", "exec_stmt_raise")); /* a trigger's `raise warning` at commit */
    assert_false(pg_is_local_commit("25P01", "EndTransactionBlock"));
    assert_false(pg_is_local_commit("25P01", NULL));
    assert_false(pg_is_local_commit(NULL, NULL));
}

/* By its own timeouts, by an operator, or because it stops: another session may be had. */
TEST(test_a_session_that_postgres_ended)
{
    static const char *const states[] = {"25P03", "25P04", "57P01", "57P02", "57P03", "57P05", "08006"};
    for (size_t i = 0; i < COUNT_OF(states); i++)
        assert_int_equal(pg_kind_of_sqlstate(states[i]), ERR_AWAY);
    assert_int_equal(pg_kind_of_sqlstate("25P02"), ERR_BUG); /* a statement after one that failed */
}

TEST(test_a_refused_login)
{
    static const char *const texts[][2] = {
        {"FATAL:  28P01: password authentication failed for user \"a\"\nLOCATION:  auth_failed, auth.c:330\n",
         "28P01"},
        {"connection to server at \"::1\", port 5432 failed: ВАЖНО:  3D000: база данных \"a\" не "
         "существует\n",
         "3D000"},
        {"connection to server on socket \"/a:  b/.s.PGSQL.5432\" failed: 致命的エラー:  57P03: "
         "データベースシステムは起動しています\n",
         "57P03"},
    };
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        char sqlstate[6];
        assert_true(pg_login_sqlstate(texts[i][0], sqlstate));
        assert_string_equal(sqlstate, texts[i][1]);
    }
}

TEST(test_no_answer_to_a_login)
{
    static const char *const texts[] = {"",
                                        ":  ",
                                        "could not translate host name \"a\"",
                                        "a:  b:  28p01: c",
                                        "FATAL:  28P0: c",
                                        "FATAL:  28P01",
                                        "FATAL:  sorry, too many clients"};
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        char sqlstate[6];
        assert_false(pg_login_sqlstate(texts[i], sqlstate));
    }
}
