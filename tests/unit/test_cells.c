/* The list of cells, and in which order they are asked. Its mistakes: tests/live/test_cells.py. */
#include "gateway/config/cells.h"
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int load(struct cells *c, const char *text, struct err *e)
{
    char path[] = "/tmp/test_cells.XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    int rc = cells_load(c, path, NULL, e);
    unlink(path);
    return rc;
}

static const char three[] = "[cell a]\npostgres.url = dbname=a\nnumber = 7\n"
                            "[cell b-1.x]\nnumber=0\npostgres.url=postgresql://b/b ; of the south\n"
                            "# none\n[cell c]\n  postgres.url = dbname=c\n";

TEST(test_loads)
{
    struct cells c;
    struct err e;
    assert_int_equal(load(&c, three, &e), 0);
    assert_int_equal(c.count, 3);
    assert_string_equal(c.list[1].name, "b-1.x");
    assert_string_equal(c.list[1].postgres_url, "postgresql://b/b");
    assert_int_equal(c.list[0].number, 7);
    assert_int_equal(c.list[1].number, 0);
    assert_int_equal(c.list[2].number, -1);
    cells_free(&c);
}

static void expect_order(const struct cells *c, const struct message_id *id, size_t first)
{
    size_t order[CELLS_MAX], seen = 0;
    cells_order(c, id, order);
    assert_int_equal(order[0], first);
    for (size_t i = 0; i < c->count; i++)
        seen |= (size_t)1 << order[i];
    assert_int_equal(seen, 7);
}

TEST(test_asks_the_one_that_the_id_names_first)
{
    static const uint8_t random[10] = {1, 2, 3};
    struct cells c;
    struct err e;
    assert_int_equal(load(&c, three, &e), 0);
    struct message_id id = message_id_make(1000, random);
    for (int n = 0; n < 256; n++) {
        id = message_id_of_cell(id, n);
        assert_int_equal(message_id_cell(id), n);
        assert_true(message_id_is_ours(id));
        assert_int_equal(message_id_due_ms(id), 1000);
        assert_int_equal(message_id_cell(message_id_move(id, 5000)), n);
        expect_order(&c, &id, n == 0 ? 1 : 0); /* 7 is the first in the file, too */
    }
    expect_order(&c, NULL, 0);
    cells_free(&c);
}

TEST(test_refuses)
{
    static const char *const wrong[][2] = {
        {"[cell ]\n", "unknown section"},
        {"[cell a]\npostgres.url=dbname=a\nnumber=-1\n", ":3: cell a: number: \"-1\" is not allowed"},
        {"[cell a]\npostgres.url=dbname=a\nnumber=1x\n", "\"1x\""},
        {"[cell a]\npostgres.url=\n", ":2: cell a: postgres.url is empty"},
        {"x=1\n[cell a]\npostgres.url=dbname=a\n", ":1: option x stands before the first [section]"},
        {"[cell a]\npostgres.url=dbname=a\nnumber=1\nnumber=1\n",
         ":4: cell a: number is set before, on line 3"},
    };
    struct cells c;
    struct err e;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(load(&c, wrong[i][0], &e), -1);
        assert_int_equal(e.kind, ERR_CONFIG);
        if (strstr(e.text, wrong[i][1]) == NULL)
            fail_msg("wanted \"%s\" in \"%s\"", wrong[i][1], e.text);
    }
}
