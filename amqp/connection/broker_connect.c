/* Opening and closing a connection. */
#include "amqp/connection/broker_internal.h"
#include "core/base/clock.h"
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

#define CONNECT_TIMEOUT_MS 10000 /* where the caller names none */
#define SHARE_MIN_MS 1000        /* of it, for a host after which there is another one */
#define CLOSE_TIMEOUT_MS 1000
#define USER_TIMEOUT_MS 20000 /* unacknowledged by the peer's kernel for so long: the peer is gone */
#define CLOSE_NS (CLOSE_TIMEOUT_MS * INT64_C(1000000))

static struct timeval timeval_of_ms(int ms)
{
    return (struct timeval){.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000L};
}

/* --- TCP */

static int fail_without_files(const struct broker *b, struct err *e)
{
    return err_set(e, ERR_LIMIT,
                   "cannot connect to RabbitMQ at %s: %s: raise the limit (LimitNOFILE, ulimit -n)",
                   b->address, strerror(errno));
}

static int connect_socket(struct broker *b, const struct broker_options *o, const struct broker_host *host,
                          int timeout_ms, struct err *e)
{
    struct timeval timeout = timeval_of_ms(timeout_ms);
    amqp_socket_t *socket = b->tls ? broker_tls_socket(b, o, host->name, e) : amqp_tcp_socket_new(b->conn);
    int one = 1;
    unsigned user_timeout_ms = USER_TIMEOUT_MS;
    if (!socket)
        return b->tls ? -1 : err_set(e, ERR_BUG, "out of memory");
    errno = 0; /* the library says "refused" whatever it was */
    int status = amqp_socket_open_noblock(socket, host->name, host->port, &timeout);
    if (status != AMQP_STATUS_OK && (errno == EMFILE || errno == ENFILE))
        return fail_without_files(b, e);
    if (status == AMQP_STATUS_SOCKET_ERROR)
        return err_set(e, ERR_AWAY, "cannot connect to RabbitMQ at %s: refused or not reachable", b->address);
    if (status != AMQP_STATUS_OK)
        return broker_fail_status(b, status, "connect", e);
    b->fd = fcntl(amqp_get_sockfd(b->conn), F_DUPFD_CLOEXEC, 3);
    if (b->fd < 0)
        return fail_without_files(b, e);
    if (b->tls && broker_tls_take_over(b, e))
        return -1;
    /* Best effort: the heartbeat notices a dead peer too, only later. */
    (void)setsockopt(b->fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    (void)setsockopt(b->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)setsockopt(b->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout_ms, sizeof(user_timeout_ms));
    return 0;
}

static struct broker *open_host(const struct broker_options *o, const struct broker_url *url, size_t host,
                                int timeout_ms, struct err *e)
{
    struct broker *b = calloc(1, sizeof(*b));
    if (!b) {
        err_set(e, ERR_BUG, "out of memory");
        return NULL;
    }
    b->fd = -1;
    if (broker_stream_init(b)) {
        err_set(e, ERR_BUG, "out of memory");
        goto fail;
    }
    b->tls = url->tls;
    b->host = host;
    b->host_count = url->host_count;
    broker_host_address(&url->hosts[host], b->address, sizeof(b->address));
    b->conn = amqp_new_connection();
    if (!b->conn) {
        err_set(e, ERR_BUG, "out of memory");
        goto fail;
    }
    if (connect_socket(b, o, &url->hosts[host], timeout_ms, e) || broker_login(b, o, url, timeout_ms, e))
        goto fail;
    b->hosts = o->hosts; /* from here on its end is something to remember */
    return b;
fail:
    broker_drop(b);
    return NULL;
}

/* What several hosts said, as one error: worth another try if one of them is. */
static void add_failure(struct err *all, size_t tried, const struct err *one)
{
    size_t used = strlen(all->text);
    if (tried == 0) {
        *all = *one;
        return;
    }
    if (!strstr(all->text, one->text)) /* what is wrong with our own files is so for all of them */
        snprintf(all->text + used, sizeof(all->text) - used, "; %s", one->text);
    all->kind = err_is_transient(all) ? all->kind : one->kind;
}

/* Tries the hosts in their order until one takes the connection. */
static struct broker *open_any(const struct broker_options *o, const struct broker_url *url, struct err *e)
{
    int timeout_ms = o->connect_timeout_ms > 0 ? o->connect_timeout_ms : CONNECT_TIMEOUT_MS;
    int share_ms = timeout_ms / (int)url->host_count;
    int64_t began_ms = clock_monotonic_ms();
    size_t order[BROKER_HOSTS_MAX];
    struct broker *b = NULL;
    struct err one = {0};
    share_ms = share_ms < SHARE_MIN_MS ? SHARE_MIN_MS : share_ms;
    broker_hosts_order(o->hosts, url->host_count, order);
    for (size_t i = 0; i < url->host_count && !b; i++) {
        bool last = i + 1 == url->host_count;
        if (i > 0 && clock_monotonic_ms() - began_ms > 2 * timeout_ms)
            break; /* the rest come first the next time */
        b = open_host(o, url, order[i], last ? timeout_ms : share_ms, &one);
        if (b && o->hosts) {
            broker_hosts_worked(o->hosts, order[i]);
        } else if (!b) {
            char address[BROKER_ADDRESS_MAX];
            broker_host_address(&url->hosts[order[i]], address, sizeof(address));
            if (o->hosts)
                broker_hosts_failed(o->hosts, order[i], &one, address);
            if (e)
                add_failure(e, i, &one);
        }
    }
    return b;
}

struct broker *broker_open(const struct broker_options *o, struct err *e)
{
    struct broker_url url;
    struct broker *b = NULL;
    int timeout_ms = o->connect_timeout_ms > 0 ? o->connect_timeout_ms : CONNECT_TIMEOUT_MS;
    if (broker_url_parse(o->url, &url, e))
        err_wrap(e, "amqp.url");
    else if (o->only_host > 0)
        b = open_host(o, &url, ((size_t)o->only_host - 1) % url.host_count, timeout_ms, e);
    else if (url.tls && broker_tls_check_files(o, e))
        b = NULL; /* the same for all of them */
    else
        b = open_any(o, &url, e);
    explicit_bzero(&url, sizeof(url));
    return b;
}

/* --- closing */

void broker_drop(struct broker *b)
{
    if (!b)
        return;
    if (b->hosts && b->gone)
        broker_hosts_failed(b->hosts, b->host, NULL, NULL);
    if (b->fd >= 0)
        shutdown(b->fd, SHUT_RDWR); /* TLS would send a goodbye otherwise, which may block */
    if (b->conn)
        amqp_destroy_connection(b->conn);
    broker_tls_free(b);
    if (b->fd >= 0)
        close(b->fd);
    broker_stream_free(b);
    free(b);
}

void broker_abort(struct broker *b)
{
    const struct linger at_once = {.l_onoff = 1};
    if (b && b->fd >= 0)
        setsockopt(b->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    broker_drop(b);
}

void broker_close(struct broker *b)
{
    if (b && !b->gone) {
        amqp_connection_close_t close = {.reply_code = AMQP_REPLY_SUCCESS,
                                         .reply_text = amqp_cstring_bytes("goodbye")};
        const struct broker_call c = {.channel = 0,
                                      .request = AMQP_CONNECTION_CLOSE_METHOD,
                                      .decoded = &close,
                                      .reply = AMQP_CONNECTION_CLOSE_OK_METHOD,
                                      .what = "close",
                                      .others = BROKER_DROP};
        int64_t deadline_ns = clock_monotonic_ns() + CLOSE_NS;
        if (broker_send_method_until(b, &c, deadline_ns, NULL) == 0)
            (void)broker_await(b, &c, deadline_ns, NULL, NULL);
    }
    broker_drop(b);
}

void broker_shutdown(struct broker *b)
{
    shutdown(b->fd, SHUT_RDWR);
}

int broker_close_code(const struct broker *b)
{
    return b ? b->close_code : 0;
}

bool broker_failed_inside(const struct broker *b)
{
    return broker_close_code(b) == AMQP_INTERNAL_ERROR;
}

bool broker_is_dead(const struct broker *b)
{
    return b->dead;
}

int broker_fd(const struct broker *b)
{
    return b->fd;
}

const char *broker_address(const struct broker *b)
{
    return b->address;
}

const char *broker_cluster_name(const struct broker *b)
{
    return b->cluster_name;
}

const char *broker_version(const struct broker *b)
{
    return b->version;
}

int broker_version_number(const struct broker *b)
{
    char *end;
    long major = strtol(b->version, &end, 10);
    long minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
    bool sane = major >= 0 && major < 1000 && minor >= 0 && minor < 100;
    return sane ? (int)(major * 100 + minor) : 0;
}

int broker_heartbeat_s(const struct broker *b)
{
    return b->heartbeat_s;
}
