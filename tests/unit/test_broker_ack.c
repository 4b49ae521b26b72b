#include "amqp/connection/broker_internal.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACK_BYTES 21 /* a whole frame */

static int server;

/* One end of a socket, as if it had logged in. */
static struct broker *connected(void)
{
    int fds[2];
    struct broker *b = calloc(1, sizeof *b);
    assert_non_null(b);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_int_equal(broker_stream_init(b), 0);
    b->fd = fds[0];
    b->frame_max = BROKER_FRAME_MAX;
    server = fds[1];
    return b;
}

static void end(struct broker *b)
{
    close(b->fd);
    close(server);
    broker_stream_free(b);
    free(b);
}

/* What has come, in bytes. */
static size_t heard(void)
{
    static char in[4 * BROKER_GATHERED_BYTES];
    ssize_t n = recv(server, in, sizeof in, MSG_DONTWAIT);
    return n > 0 ? (size_t)n : 0;
}

TEST(test_acknowledgements_go_out_together)
{
    struct broker *b = connected();
    for (uint64_t tag = 1; tag <= 500; tag++)
        assert_int_equal(broker_ack(b, 2 * tag, false, NULL), 0);
    assert_int_equal(heard(), 0);
    assert_true(broker_has_unsent(b));
    assert_int_equal(broker_flush(b, NULL), 0);
    assert_int_equal(heard(), 500 * ACK_BYTES);
    end(b);
}

TEST(test_what_is_asked_next_comes_behind_them)
{
    struct broker *b = connected();
    assert_int_equal(broker_ack(b, 1, false, NULL), 0);
    assert_int_equal(broker_reject(b, 2, true, NULL), 0);
    assert_true(heard() > ACK_BYTES);
    assert_int_equal(broker_ack(b, 3, true, NULL), 0);
    assert_false(broker_has_pending(b));
    assert_int_equal(heard(), ACK_BYTES);
    end(b);
}

TEST(test_many_are_sent_meanwhile)
{
    struct broker *b = connected();
    size_t most = BROKER_GATHERED_BYTES / ACK_BYTES + 1;
    for (uint64_t tag = 1; tag <= most; tag++)
        assert_int_equal(broker_ack(b, tag, false, NULL), 0);
    assert_int_equal(heard(), most * ACK_BYTES);
    assert_false(broker_has_unsent(b));
    end(b);
}

TEST(test_a_dead_connection_says_so)
{
    struct broker *b = connected();
    struct err e = {0};
    b->dead = true;
    assert_int_equal(broker_ack(b, 1, false, &e), -1);
    assert_int_equal(e.kind, ERR_AWAY);
    end(b);
}
