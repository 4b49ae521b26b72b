/* Opening and closing a connection. */
#include "amqp/connection/broker_hosts.h"
#include "amqp/connection/broker_internal.h"
#include "core/base/clock.h"
#include "core/base/random.h"
#include "core/base/version.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* --- From a connected socket to an open channel.
 *
 * Frames are ours (broker_frames.c), so the handshake is. The library's own takes any frame_max that the
 * server names, gives its output buffer that size, and then writes behind its end; rabbitmq-c 0.11 does, and
 * later versions do. Source: AMQP 0-9-1 specification, 2.2.4 and 4.2.2. */

#define FRAME_MIN 4096 /* AMQP 0-9-1, 4.2.3 */
#define OPEN_MOST_MS 10000
#define SEND_NS (10 * INT64_C(1000000000))

struct login {
    const struct broker_options *options;
    const struct broker_url *url;
    int64_t deadline_ns;
    char what[260];
};

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

static void copy_server_property(const amqp_table_t *table, const char *name, char *out, size_t out_size)
{
    for (int i = 0; i < table->num_entries; i++) {
        const amqp_table_entry_t *entry = &table->entries[i];
        bool text = entry->value.kind == AMQP_FIELD_KIND_UTF8 || entry->value.kind == AMQP_FIELD_KIND_BYTES;
        if (text && bytes_equal_str(broker_bytes(entry->key), name))
            bytes_printable(broker_bytes(entry->value.value.bytes), out, out_size);
    }
}

/* A word of a list with blanks between. */
static bool has_word(struct bytes list, const char *word)
{
    size_t len = strlen(word);
    for (size_t i = 0; i + len <= list.len; i++)
        if (memcmp(list.data + i, word, len) == 0 && (i == 0 || list.data[i - 1] == ' ') &&
            (i + len == list.len || list.data[i + len] == ' '))
            return true;
    return false;
}

static int read_start(struct broker *b, const struct login *l, struct err *e)
{
    const struct broker_call c = {.reply = AMQP_CONNECTION_START_METHOD,
                                  .phase = BROKER_LOGIN,
                                  .what = l->what,
                                  .others = BROKER_REFUSE};
    void *answer;
    if (broker_await(b, &c, l->deadline_ns, &answer, e))
        return -1;
    const amqp_connection_start_t *start = answer;
    if (start->version_major != AMQP_PROTOCOL_VERSION_MAJOR ||
        start->version_minor != AMQP_PROTOCOL_VERSION_MINOR)
        return broker_fail_status(b, AMQP_STATUS_INCOMPATIBLE_AMQP_VERSION, l->what, e);
    if (!has_word(broker_bytes(start->mechanisms), "PLAIN"))
        return broker_fail_status(b, AMQP_STATUS_BROKER_UNSUPPORTED_SASL_METHOD, l->what, e);
    copy_server_property(&start->server_properties, "cluster_name", b->cluster_name, sizeof(b->cluster_name));
    copy_server_property(&start->server_properties, "version", b->version, sizeof(b->version));
    copy_server_property(&start->server_properties, "product", b->product, sizeof(b->product));
    return 0;
}

/* *tune: the answer. */
static int send_start_ok(struct broker *b, const struct login *l, void **tune, struct err *e)
{
    amqp_table_entry_t capabilities[] = {
        bool_entry("authentication_failure_close"), /* else a wrong password looks like a lost connection */
        bool_entry("consumer_cancel_notify"),       bool_entry("exchange_exchange_bindings"),
        bool_entry("connection.blocked"),           bool_entry("basic.nack"),
        bool_entry("publisher_confirms"),
    };
    amqp_table_entry_t entries[] = {
        text_entry("product", "Postdate"),
        text_entry("version", version_string),
        text_entry("platform", "C, rabbitmq-c " AMQP_VERSION_STRING),
        text_entry("connection_name", l->options->name ? l->options->name : "postdate"),
        {.key = amqp_cstring_bytes("capabilities"),
         .value = {.kind = AMQP_FIELD_KIND_TABLE,
                   .value.table = {.num_entries = sizeof(capabilities) / sizeof(capabilities[0]),
                                   .entries = capabilities}}},
    };
    char secret[2 * BROKER_NAME_MAX + 3]; /* NUL, user, NUL, password */
    int len = snprintf(secret, sizeof(secret), "%c%s%c%s", 0, l->url->user, 0, l->url->password);
    amqp_connection_start_ok_t ok = {
        .client_properties = {.num_entries = sizeof(entries) / sizeof(entries[0]), .entries = entries},
        .mechanism = amqp_cstring_bytes("PLAIN"),
        .response = {.len = (size_t)len, .bytes = secret},
        .locale = amqp_cstring_bytes("en_US"),
    };
    const struct broker_call c = {.request = AMQP_CONNECTION_START_OK_METHOD,
                                  .decoded = &ok,
                                  .reply = AMQP_CONNECTION_TUNE_METHOD,
                                  .phase = BROKER_LOGIN,
                                  .what = l->what,
                                  .others = BROKER_REFUSE};
    int rc = broker_request_until(b, &c, l->deadline_ns, tune, e);
    explicit_bzero(secret, sizeof(secret));
    if (b->out.data)
        explicit_bzero(b->out.data, b->out.capacity);
    return rc;
}

/* The lower of two limits, where 0 is none. */
static int lower_limit(int ours, int theirs)
{
    return theirs != 0 && (ours == 0 || theirs < ours) ? theirs : ours;
}

static int negotiate_limits(struct broker *b, const amqp_connection_tune_t *tune, const struct login *l,
                            struct err *e)
{
    int heartbeat_s = l->options->heartbeat_s;
    if (tune->frame_max != 0 && tune->frame_max < FRAME_MIN) {
        b->gone = true;
        return err_set(e, ERR_AWAY,
                       "cannot %s: RabbitMQ at %s limits frames to %u bytes (AMQP requires %d or more)",
                       l->what, b->address, (unsigned)tune->frame_max, FRAME_MIN);
    }
    amqp_connection_tune_ok_t ok = {
        .channel_max = tune->channel_max,
        .frame_max =
            tune->frame_max != 0 && tune->frame_max < BROKER_FRAME_MAX ? tune->frame_max : BROKER_FRAME_MAX,
        /* 0 is ours to say: no heartbeats. */
        .heartbeat = (uint16_t)(heartbeat_s == 0 ? 0 : lower_limit(heartbeat_s, tune->heartbeat)),
    };
    const struct broker_call c = {.request = AMQP_CONNECTION_TUNE_OK_METHOD, .decoded = &ok, .what = l->what};
    if (broker_send_method_until(b, &c, clock_monotonic_ns() + SEND_NS, e))
        return -1;
    b->frame_max = ok.frame_max;
    b->heartbeat_s = ok.heartbeat;
    return 0;
}

/* Before another host is tried: no longer than a part of what that one may take. */
static int64_t open_deadline_ns(int timeout_ms)
{
    int64_t ms = 2 * timeout_ms < OPEN_MOST_MS ? 2 * timeout_ms : OPEN_MOST_MS;
    return clock_monotonic_ns() + ms * 1000000;
}

static int open_channel(struct broker *b, const char *what, int64_t deadline_ns, struct err *e)
{
    amqp_channel_open_t open = {0};
    const struct broker_call c = {.channel = BROKER_CHANNEL,
                                  .request = AMQP_CHANNEL_OPEN_METHOD,
                                  .decoded = &open,
                                  .reply = AMQP_CHANNEL_OPEN_OK_METHOD,
                                  .phase = BROKER_LOGIN,
                                  .what = what};
    return broker_request_until(b, &c, deadline_ns, NULL, e);
}

static int open_vhost(struct broker *b, const struct login *l, int64_t deadline_ns, struct err *e)
{
    amqp_connection_open_t open = {.virtual_host = amqp_cstring_bytes(l->url->vhost), .insist = 1};
    const struct broker_call c = {.request = AMQP_CONNECTION_OPEN_METHOD,
                                  .decoded = &open,
                                  .reply = AMQP_CONNECTION_OPEN_OK_METHOD,
                                  .phase = BROKER_LOGIN,
                                  .what = l->what};
    return broker_request_until(b, &c, deadline_ns, NULL, e)
               ? -1
               : open_channel(b, "open a channel", deadline_ns, e);
}

int broker_open_channel(struct broker *b, const char *what, struct err *e)
{
    return open_channel(b, what, clock_monotonic_ns() + OPEN_MOST_MS * INT64_C(1000000), e);
}

/* Logs in and opens the channel; timeout_ms > 0 for the whole handshake, then for each call. */
static int broker_login(struct broker *b, const struct broker_options *o, const struct broker_url *url,
                        int timeout_ms, struct err *e)
{
    struct login l = {o, url, clock_monotonic_ns() + timeout_ms * INT64_C(1000000), ""};
    void *tune;
    snprintf(l.what, sizeof(l.what), "log in as '%.100s' to vhost '%.100s'", url->user, url->vhost);
    buf_put(&b->out, "AMQP\0\0\x09\x01", 8);
    return broker_flush_until(b, l.what, l.deadline_ns, e) || read_start(b, &l, e) ||
                   send_start_ok(b, &l, &tune, e) || negotiate_limits(b, tune, &l, e) ||
                   open_vhost(b, &l, open_deadline_ns(timeout_ms), e)
               ? -1
               : 0;
}

#define LATELY_MS 30000
#define SEATS_MAX 16

struct host {
    char address[BROKER_ADDRESS_MAX], why[300];
    int64_t failed_ms; /* monotonic; 0: never, or it has worked since */
    bool away, told;   /* reported: that it fails, or no longer fails */
};

struct broker_hosts {
    pthread_mutex_t lock; /* guards all else */
    struct host hosts[BROKER_HOSTS_MAX];
    struct {
        char who[64], address[BROKER_ADDRESS_MAX];
    } seats[SEATS_MAX];
};

struct broker_hosts *broker_hosts_new(void)
{
    struct broker_hosts *h = calloc(1, sizeof(*h));
    if (h) {
        pthread_mutex_init(&h->lock, NULL);
        for (size_t i = 0; i < BROKER_HOSTS_MAX; i++)
            h->hosts[i].told = true;
    }
    return h;
}

void broker_hosts_free(struct broker_hosts *h)
{
    if (h) {
        pthread_mutex_destroy(&h->lock);
        free(h);
    }
}

static void shuffle_order(size_t count, size_t order[])
{
    for (size_t i = 0; i < count; i++) {
        size_t j = random_u32() % (i + 1);
        order[i] = order[j];
        order[j] = i;
    }
}

void broker_hosts_order(struct broker_hosts *h, size_t count, size_t order[static BROKER_HOSTS_MAX])
{
    int64_t from_ms = clock_monotonic_ms() - LATELY_MS, failed_ms[BROKER_HOSTS_MAX] = {0};
    shuffle_order(count, order);
    if (!h)
        return;
    pthread_mutex_lock(&h->lock);
    for (size_t i = 0; i < count; i++)
        failed_ms[i] = h->hosts[i].failed_ms > from_ms ? h->hosts[i].failed_ms : 0;
    pthread_mutex_unlock(&h->lock);
    for (size_t i = 1; i < count; i++) { /* by insertion: what is equal stays as it was drawn */
        size_t x = order[i], j = i;
        for (; j > 0 && failed_ms[order[j - 1]] > failed_ms[x]; j--)
            order[j] = order[j - 1];
        order[j] = x;
    }
}

void broker_hosts_worked(struct broker_hosts *h, size_t i)
{
    pthread_mutex_lock(&h->lock);
    struct host *x = &h->hosts[i];
    x->failed_ms = 0;
    if (x->away) {
        x->told = !x->told; /* a failure that was not reported needs no report of its end */
        x->away = false;
    }
    pthread_mutex_unlock(&h->lock);
}

void broker_hosts_failed(struct broker_hosts *h, size_t i, const struct err *why, const char *address)
{
    pthread_mutex_lock(&h->lock);
    struct host *x = &h->hosts[i];
    x->failed_ms = clock_monotonic_ms();
    if (why && !x->away) {
        x->told = !x->told;
        x->away = true;
        snprintf(x->why, sizeof(x->why), "%.*s", (int)sizeof(x->why) - 1, why->text);
        snprintf(x->address, sizeof(x->address), "%s", address);
    }
    pthread_mutex_unlock(&h->lock);
}

bool broker_hosts_take_news(struct broker_hosts *h, struct broker_host_news *out)
{
    bool found = false;
    pthread_mutex_lock(&h->lock);
    for (size_t i = 0; i < BROKER_HOSTS_MAX && !found; i++) {
        struct host *x = &h->hosts[i];
        if (!x->told) {
            found = x->told = true;
            out->back = !x->away;
            memcpy(out->address, x->address, sizeof(out->address));
            memcpy(out->why, x->why, sizeof(out->why));
        }
    }
    pthread_mutex_unlock(&h->lock);
    return found;
}

bool broker_hosts_moved(struct broker_hosts *h, const char *who, const struct broker *b,
                        char before[static BROKER_ADDRESS_MAX])
{
    bool moved = false;
    pthread_mutex_lock(&h->lock);
    for (size_t i = 0; i < SEATS_MAX && b->host_count > 1; i++) {
        if (h->seats[i].who[0] != '\0' && strcmp(h->seats[i].who, who) != 0)
            continue;
        moved = strcmp(h->seats[i].address, b->address) != 0;
        memcpy(before, h->seats[i].address, BROKER_ADDRESS_MAX);
        snprintf(h->seats[i].who, sizeof(h->seats[i].who), "%s", who);
        memcpy(h->seats[i].address, b->address, BROKER_ADDRESS_MAX);
        break;
    }
    pthread_mutex_unlock(&h->lock);
    return moved;
}

/* --- Opening and closing a connection. */

#define CONNECT_TIMEOUT_MS 10000 /* where the caller names none */
#define SHARE_MIN_MS 1000        /* of it, for a host after which there is another one */
#define CLOSE_TIMEOUT_MS 1000
#define USER_TIMEOUT_MS 20000 /* data unacknowledged by the peer's kernel for this long: the peer is lost */
#define CLOSE_NS (CLOSE_TIMEOUT_MS * INT64_C(1000000))

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
    struct timeval timeout = {.tv_sec = timeout_ms / 1000, .tv_usec = (timeout_ms % 1000) * 1000L};
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

/* The errors of several hosts as one, which is transient if one of them is. */
static void add_failure(struct err *all, size_t tried, const struct err *one)
{
    size_t used = strlen(all->text);
    if (tried == 0) {
        *all = *one;
        return;
    }
    if (!strstr(all->text, one->text)) /* errors in our own files are the same for all hosts */
        snprintf(all->text + used, sizeof(all->text) - used, "; %s", one->text);
    all->kind = err_is_transient(all) ? all->kind : one->kind;
}

/* Tries the hosts in their order until one takes the connection. */
static struct broker *open_any(const struct broker_options *o, const struct broker_url *url, struct err *e)
{
    int timeout_ms = o->connect_timeout_ms > 0 ? o->connect_timeout_ms : CONNECT_TIMEOUT_MS;
    int share_ms = timeout_ms / (int)url->host_count;
    int64_t began_ms = clock_monotonic_ms();
    size_t order[BROKER_HOSTS_MAX] = {0};
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

void broker_end(struct broker *b, bool politely)
{
    (politely ? broker_close : broker_drop)(b);
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
