/* What a failed answer was about: a lock, or a key that was answered meanwhile. */
#include "sql/connection/pg_internal.h"
#include "sql/operate/idempotency.h"
#include "tests/unit/unit.h"

#include <stdio.h>

static int64_t written; /* by the next statement; -1: it meets a lock */

int64_t pg_run(struct pg *c, enum sql_query query, const struct pg_params *params, struct err *e)
{
    (void)query;
    (void)params;
    if (written >= 0)
        return written;
    snprintf(c->sqlstate, sizeof c->sqlstate, "55P03");
    return err_set(e, ERR_BUSY, "a lock");
}

int pg_exec(struct pg *c, const char *text, struct err *e)
{
    (void)c;
    (void)text;
    (void)e;
    return 0;
}

PGresult *pg_query(struct pg *c, enum sql_query query, const struct pg_params *params, struct err *e)
{
    (void)c;
    (void)query;
    (void)params;
    (void)e;
    return NULL;
}

int pg_do(struct pg *c, enum sql_query query, const struct pg_params *params, struct err *e)
{
    (void)c;
    (void)query;
    (void)params;
    (void)e;
    return -1;
}

int pg_confirm(struct pg *c, struct err *e)
{
    (void)c;
    (void)e;
    return -1;
}

/* A group of two. */
static int finish(struct pg *c, int64_t rows, struct err *e)
{
    struct idempotency_request one = {.key = bytes_of_str("one"), .status = 201},
                               other = {.key = bytes_of_str("other"), .status = 201};
    struct idempotency_request *const both[] = {&one, &other};
    written = rows;
    *e = (struct err){0};
    return idempotency_finish_at_once(c, both, 2, e);
}

TEST(test_a_key_that_was_answered_meanwhile_is_no_lock)
{
    struct pg c = {0};
    struct err e;
    assert_int_equal(finish(&c, 2, &e), 0);
    assert_int_equal(finish(&c, -1, &e), -1);
    assert_int_equal(e.kind, ERR_BUSY);
    assert_string_equal(c.sqlstate, "55P03");
    assert_int_equal(finish(&c, 2, &e), 0); /* the lock is gone */
    assert_int_equal(finish(&c, 1, &e), -1);
    assert_int_equal(e.kind, ERR_BUSY);
    assert_string_equal(e.text, "an Idempotency-Key was answered meanwhile");
    assert_string_equal(c.sqlstate, "");
}
