/* Opening and closing a connection. */
#include "amqp/broker_internal.h"
#include "core/clock.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define FRAME_MAX 131072
#define RPC_TIMEOUT_MS 10000
#define CONNECT_TIMEOUT_MS 10000 /* where the caller names none */
#define CLOSE_TIMEOUT_MS 1000
#define USER_TIMEOUT_MS 20000 /* unacknowledged by the peer's kernel for so long: the peer is gone */
#define CLOSE_NS (CLOSE_TIMEOUT_MS * INT64_C(1000000))

static struct timeval timeval_of_ms(int ms)
{
    ms = ms > 0 ? ms : CONNECT_TIMEOUT_MS;
    return (struct timeval){.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000L};
}

/* --- TCP */

static int connect_socket(struct broker *b, const struct broker_options *o, const struct broker_url *url,
                          struct err *e)
{
    struct timeval timeout = timeval_of_ms(o->connect_timeout_ms);
    amqp_socket_t *socket = url->tls ? broker_tls_socket(b, o, url->host, e) : amqp_tcp_socket_new(b->conn);
    int one = 1;
    unsigned user_timeout_ms = USER_TIMEOUT_MS;

    if (!socket) {
        return url->tls ? -1 : err_set(e, ERR_BUG, "out of memory");
    }
    int status = amqp_socket_open_noblock(socket, url->host, url->port, &timeout);
    if (status == AMQP_STATUS_SOCKET_ERROR) {
        return err_set(e, ERR_AWAY, "cannot connect to RabbitMQ at %s: refused or not reachable", b->address);
    }
    if (status != AMQP_STATUS_OK) {
        return broker_fail_status(b, status, "connect", e);
    }
    b->fd = fcntl(amqp_get_sockfd(b->conn), F_DUPFD_CLOEXEC, 3);
    if (b->fd < 0) {
        return err_set(e, ERR_BUG, "cannot duplicate the socket: %s", strerror(errno));
    }
    /* Best effort: the heartbeat notices a dead peer too, only later. */
    (void)setsockopt(b->fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    (void)setsockopt(b->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)setsockopt(b->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout_ms, sizeof(user_timeout_ms));
    return 0;
}

/* --- login */

static amqp_table_entry_t bool_entry(const char *name)
{
    return (amqp_table_entry_t){.key = amqp_cstring_bytes(name),
                                .value = {.kind = AMQP_FIELD_KIND_BOOLEAN, .value.boolean = 1}};
}

static amqp_table_entry_t text_entry(const char *name, const char *value)
{
    return (amqp_table_entry_t){
        .key = amqp_cstring_bytes(name),
        .value = {.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = amqp_cstring_bytes(value)}};
}

static int login(struct broker *b, const struct broker_options *o, const struct broker_url *url,
                 struct err *e)
{
    amqp_table_entry_t capabilities[] = {
        bool_entry("authentication_failure_close"), /* else a wrong password looks like a lost connection */
        bool_entry("consumer_cancel_notify"),
        bool_entry("connection.blocked"),
        bool_entry("basic.nack"),
        bool_entry("publisher_confirms"),
    };
    amqp_table_entry_t entries[] = {
        text_entry("product", "Postdate"),
        text_entry("connection_name", o->name ? o->name : "postdate"),
        {.key = amqp_cstring_bytes("capabilities"),
         .value = {.kind = AMQP_FIELD_KIND_TABLE,
                   .value.table = {.num_entries = sizeof(capabilities) / sizeof(capabilities[0]),
                                   .entries = capabilities}}},
    };
    amqp_table_t properties = {.num_entries = sizeof(entries) / sizeof(entries[0]), .entries = entries};
    struct timeval timeout = timeval_of_ms(o->connect_timeout_ms);
    struct timeval rpc_timeout = timeval_of_ms(RPC_TIMEOUT_MS);

    amqp_set_handshake_timeout(b->conn, &timeout);
    amqp_set_rpc_timeout(b->conn, &rpc_timeout);

    amqp_rpc_reply_t reply =
        amqp_login_with_properties(b->conn, url->vhost, 0, FRAME_MAX, o->heartbeat_s, &properties,
                                   AMQP_SASL_METHOD_PLAIN, url->user, url->password);
    if (reply.reply_type != AMQP_RESPONSE_NORMAL) {
        char what[600];
        snprintf(what, sizeof(what), "log in as '%.100s' to vhost '%.100s'", url->user, url->vhost);
        return broker_fail_reply(b, reply, BROKER_LOGIN, what, e);
    }
    b->frame_max = (size_t)amqp_get_frame_max(b->conn);
    amqp_channel_open(b->conn, BROKER_CHANNEL);
    reply = amqp_get_rpc_reply(b->conn);
    if (reply.reply_type != AMQP_RESPONSE_NORMAL) {
        return broker_fail_reply(b, reply, BROKER_LOGIN, "open a channel", e);
    }
    amqp_maybe_release_buffers(b->conn);
    return 0;
}

static void copy_server_property(struct broker *b, const char *name, char *out, size_t out_size)
{
    const amqp_table_t *table = amqp_get_server_properties(b->conn);

    for (int i = 0; i < table->num_entries; i++) {
        const amqp_table_entry_t *entry = &table->entries[i];
        bool text = entry->value.kind == AMQP_FIELD_KIND_UTF8 || entry->value.kind == AMQP_FIELD_KIND_BYTES;
        if (text && bytes_equal_str(broker_bytes(entry->key), name)) {
            bytes_printable(broker_bytes(entry->value.value.bytes), out, out_size);
        }
    }
}

struct broker *broker_open(const struct broker_options *o, struct err *e)
{
    struct broker_url url;
    struct broker *b = calloc(1, sizeof(*b));

    if (!b) {
        err_set(e, ERR_BUG, "out of memory");
        return NULL;
    }
    b->fd = -1;
    /* Room for what is gathered, and then the header and one body frame of the largest kind. */
    buf_init(&b->out, 65536 + 2 * FRAME_MAX);
    init_amqp_pool(&b->pool, 4096);
    if (broker_url_parse(o->url, &url, e) || broker_url_address(o->url, b->address, sizeof(b->address), e)) {
        goto fail;
    }
    b->tls = url.tls;
    b->conn = amqp_new_connection();
    if (!b->conn) {
        err_set(e, ERR_BUG, "out of memory");
        goto fail;
    }
    if (connect_socket(b, o, &url, e) || login(b, o, &url, e)) {
        goto fail;
    }
    copy_server_property(b, "cluster_name", b->cluster_name, sizeof(b->cluster_name));
    copy_server_property(b, "version", b->version, sizeof(b->version));
    explicit_bzero(&url, sizeof(url));
    return b;

fail:
    explicit_bzero(&url, sizeof(url));
    broker_drop(b);
    return NULL;
}

/* --- closing */

void broker_drop(struct broker *b)
{
    if (!b) {
        return;
    }
    if (b->fd >= 0) {
        shutdown(b->fd, SHUT_RDWR); /* TLS would send a goodbye otherwise, which may block */
    }
    if (b->conn) {
        amqp_destroy_connection(b->conn);
    }
    if (b->fd >= 0) {
        close(b->fd);
    }
    empty_amqp_pool(&b->pool);
    buf_free(&b->out);
    free(b);
}

void broker_close(struct broker *b)
{
    if (b && !b->gone) {
        struct timeval timeout = timeval_of_ms(CLOSE_TIMEOUT_MS);
        struct pollfd p = {.fd = b->fd, .events = POLLOUT};

        /* The library would wait for ever for a socket that takes no bytes. */
        if (broker_flush_until(b, clock_monotonic_ns() + CLOSE_NS, NULL) == 0 &&
            poll(&p, 1, CLOSE_TIMEOUT_MS) == 1) {
            amqp_set_rpc_timeout(b->conn, &timeout);
            amqp_connection_close(b->conn, AMQP_REPLY_SUCCESS);
        }
    }
    broker_drop(b);
}

void broker_shutdown(struct broker *b)
{
    shutdown(b->fd, SHUT_RDWR);
}

bool broker_is_dead(const struct broker *b)
{
    return b->dead;
}

bool broker_was_shut_down(const struct broker *b)
{
    return b->shut_down;
}

int broker_fd(const struct broker *b)
{
    return b->fd;
}

const char *broker_cluster_name(const struct broker *b)
{
    return b->cluster_name;
}

const char *broker_version(const struct broker *b)
{
    return b->version;
}
