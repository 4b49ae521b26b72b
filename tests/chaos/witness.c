/* witness --url URL --queue QUEUE --out FILE [--rejects classic|quorum]: writes down every delivery of a
 * queue, for the chaos ledger (tests/chaos/record.py says what a line means). With --rejects it rejects some
 * of them, which ones their reference and attempt say; the word is the queue's type, for the lines.
 *
 * An oracle of its own: plain rabbitmq-c and nothing of Postdate. One thread. A delivery is acknowledged or
 * rejected after its line is with the kernel, so the death of this program loses none: the queue delivers
 * them again. Connects again for ever; ends on SIGTERM or SIGINT, exit 0. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* rabbitmq-c 0.12 moved its headers; the old names still work there but warn. */
#ifdef __has_include
/* cppcheck-suppress preprocessorErrorDirective */
#if __has_include(<rabbitmq-c/amqp.h>)
#define WITNESS_NEW_HEADERS
#endif
#endif
#ifdef WITNESS_NEW_HEADERS
#include <rabbitmq-c/amqp.h>
#include <rabbitmq-c/tcp_socket.h>
#else
#include <amqp.h>
#include <amqp_tcp_socket.h>
#endif

#define CHANNEL 1
#define PREFETCH 2000
#define BATCH 500    /* deliveries that are written and acknowledged together */
#define IDLE_US 2000 /* what has come is written when nothing more does for so long */
#define BACK_OFF_MS 50
#define HEARTBEAT_S 5
#define CONNECT_S 5
#define FRAME_MAX 131072
#define FIELD_MAX 255
#define LINE_MAX (4 * FIELD_MAX + 192)
#define REJECTED_ALWAYS 6     /* percent of the messages: as in record.py */
#define REJECTED_BY_CHANCE 30 /* percent of the attempts */

struct witness {
    const char *url, *queue, *out;
    const char *rejects; /* type of the queue; NULL: accepts all */
    int file;
    amqp_connection_state_t connection; /* NULL: none */
    struct {
        uint64_t tag;
        bool rejected;
    } taken[BATCH]; /* deliveries whose lines are in `lines` */
    int pending;    /* how many */
    size_t used;
    char lines[BATCH * LINE_MAX];
    uint64_t seen, reconnects;
    char trouble[256]; /* the last one that was said: each is said once */
};

static volatile sig_atomic_t stopping;

static void stop(int number)
{
    (void)number;
    stopping = 1;
}

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "witness: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void say(struct witness *w, const char *what, const char *why)
{
    char text[sizeof w->trouble];
    snprintf(text, sizeof text, "%s: %s", what, why);
    if (strcmp(text, w->trouble) != 0)
        fprintf(stderr, "witness: %s\n", text);
    memcpy(w->trouble, text, sizeof text);
}

/* --- bodies: "REF CHECKSUM padding" */

static uint32_t crc_table[256];

static void crc_prepare(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = (c & 1) != 0 ? 0xEDB88320U ^ (c >> 1) : c >> 1;
        crc_table[i] = c;
    }
}

static uint32_t crc_add(uint32_t crc, const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        crc = crc_table[(crc ^ data[i]) & 0xFF] ^ (crc >> 8);
    return crc;
}

static bool hex_read(const uint8_t *text, uint32_t *value)
{
    *value = 0;
    for (int i = 0; i < 8; i++) {
        uint8_t c = text[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
        *value = *value << 4 | (uint32_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return true;
}

/* Sets the reference (no bytes: there is none) and says whether the checksum is right. */
static bool body_read(amqp_bytes_t body, amqp_bytes_t *ref)
{
    const uint8_t *text = body.bytes;
    const uint8_t *blank = body.len > 0 ? memchr(text, ' ', body.len) : NULL;
    *ref = amqp_empty_bytes;
    if (blank == NULL || blank == text)
        return false;
    size_t head = (size_t)(blank - text) + 1, rest = body.len - head;
    *ref = (amqp_bytes_t){.len = head - 1, .bytes = body.bytes};
    uint32_t said;
    if (rest < 9 || blank[9] != ' ' || !hex_read(blank + 1, &said))
        return false;
    uint32_t crc = crc_add(0xFFFFFFFFU, text, head);
    return (crc_add(crc, blank + 10, rest - 9) ^ 0xFFFFFFFFU) == said;
}

/* --- lines */

/* Any bytes as one field of a line. */
static void add_field(struct witness *w, amqp_bytes_t field)
{
    const uint8_t *text = field.bytes;
    size_t size = field.len < FIELD_MAX ? field.len : FIELD_MAX;
    for (size_t i = 0; i < size; i++)
        w->lines[w->used++] = text[i] > ' ' && text[i] < 127 ? (char)text[i] : '_';
    if (size == 0)
        w->lines[w->used++] = '-';
    w->lines[w->used++] = ' ';
}

static const amqp_field_value_t *find_header(const amqp_basic_properties_t *p, const char *name)
{
    if ((p->_flags & AMQP_BASIC_HEADERS_FLAG) == 0)
        return NULL;
    for (int i = 0; i < p->headers.num_entries; i++) {
        const amqp_table_entry_t *entry = &p->headers.entries[i];
        if (entry->key.len == strlen(name) && memcmp(entry->key.bytes, name, entry->key.len) == 0)
            return &entry->value;
    }
    return NULL;
}

/* The id that Postdate gave it. */
static amqp_bytes_t find_id(const amqp_basic_properties_t *p)
{
    const amqp_field_value_t *header = find_header(p, "x-postdate-id");
    if (header != NULL && header->kind == AMQP_FIELD_KIND_UTF8)
        return header->value.bytes;
    return (p->_flags & AMQP_BASIC_MESSAGE_ID_FLAG) != 0 ? p->message_id : amqp_empty_bytes;
}

/* How often the queue had delivered it before. A quorum queue counts, a classic one only says "again": -1.
 * (The header alone means nothing: a publisher may have sent it.) */
static int64_t count_again(const amqp_envelope_t *envelope)
{
    const amqp_field_value_t *count = find_header(&envelope->message.properties, "x-delivery-count");
    if (!envelope->redelivered)
        return 0;
    if (count != NULL && count->kind == AMQP_FIELD_KIND_I64)
        return count->value.i64;
    if (count != NULL && count->kind == AMQP_FIELD_KIND_I32)
        return count->value.i32;
    return count != NULL && count->kind == AMQP_FIELD_KIND_U8 ? count->value.u8 : -1;
}

/* Which delivery to this queue it is, as Postdate counts them. */
static int64_t count_attempt(const amqp_basic_properties_t *p)
{
    const amqp_field_value_t *attempt = find_header(p, "x-postdate-attempt");
    if (attempt == NULL)
        return 1;
    return attempt->kind == AMQP_FIELD_KIND_I32 ? attempt->value.i32 : -1;
}

/* record.py: percent_of(). */
static unsigned percent_of(amqp_bytes_t ref, int64_t attempt)
{
    char text[32];
    int size = snprintf(text, sizeof text, " %" PRId64, attempt);
    uint32_t x = crc_add(0xFFFFFFFFU, ref.bytes, ref.len);
    x = crc_add(x, (const uint8_t *)text, (size_t)size) ^ 0xFFFFFFFFU;
    x = (x ^ x >> 16) * 0x7feb352dU;
    x = (x ^ x >> 15) * 0x846ca68bU;
    return (x ^ x >> 16) % 100;
}

static void add_answer(struct witness *w, const amqp_envelope_t *envelope, amqp_bytes_t ref)
{
    int64_t attempt = count_attempt(&envelope->message.properties);
    bool rejected = percent_of(ref, 0) < REJECTED_ALWAYS || percent_of(ref, attempt) < REJECTED_BY_CHANCE;
    int n = snprintf(w->lines + w->used, 64, "%" PRId64 " %s ", attempt, rejected ? "rejected" : "accepted");
    w->used += (size_t)n;
    add_field(w, amqp_cstring_bytes(w->rejects));
    w->taken[w->pending].rejected = rejected;
}

static void note(struct witness *w, const amqp_envelope_t *envelope)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    amqp_bytes_t ref;
    bool right = body_read(envelope->message.body, &ref);
    int64_t again = count_again(envelope);
    w->lines[w->used++] = 'D';
    w->lines[w->used++] = ' ';
    add_field(w, ref);
    int n = snprintf(w->lines + w->used, 64, "%" PRId64, (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    w->used += (size_t)n;
    n = again < 0 ? snprintf(w->lines + w->used, 64, " r ")
                  : snprintf(w->lines + w->used, 64, " %" PRId64 " ", again);
    w->used += (size_t)n;
    add_field(w, find_id(&envelope->message.properties));
    add_field(w, amqp_cstring_bytes(right ? "ok" : "bad"));
    add_field(w, envelope->exchange);
    add_field(w, envelope->routing_key);
    w->taken[w->pending].tag = envelope->delivery_tag;
    w->taken[w->pending].rejected = false;
    if (w->rejects != NULL)
        add_answer(w, envelope, ref);
    w->lines[w->used - 1] = '\n';
    w->pending++;
    w->seen++;
}

/* A full disk is waited for: what is not written is not acknowledged. */
static void write_lines(struct witness *w)
{
    size_t done = 0;
    while (done < w->used) {
        ssize_t n = write(w->file, w->lines + done, w->used - done);
        if (n >= 0) {
            done += (size_t)n;
        } else if (errno == ENOSPC || errno == EINTR) {
            poll(NULL, 0, BACK_OFF_MS);
        } else {
            die(w->out);
        }
    }
    w->used = 0;
}

/* A line that an earlier witness left torn was never acknowledged: it goes. */
static void open_file(struct witness *w)
{
    w->file = open(w->out, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    struct stat st;
    if (w->file < 0 || fstat(w->file, &st) != 0)
        die(w->out);
    off_t size = st.st_size;
    char last = '\n';
    while (size > 0 && pread(w->file, &last, 1, size - 1) == 1 && last != '\n')
        size--;
    if (size < st.st_size && ftruncate(w->file, size) != 0)
        die(w->out);
}

/* --- the connection */

static bool is_normal(struct witness *w, amqp_rpc_reply_t reply, const char *what)
{
    if (reply.reply_type == AMQP_RESPONSE_NORMAL)
        return true;
    if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION) {
        say(w, what, amqp_error_string2(reply.library_error));
    } else if (reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD) {
        amqp_channel_close_t *close = reply.reply.decoded;
        char text[128];
        snprintf(text, sizeof text, "%.*s", (int)close->reply_text.len, (char *)close->reply_text.bytes);
        say(w, what, text);
    } else {
        say(w, what, "the server refused it");
    }
    return false;
}

static bool log_in(struct witness *w, const struct amqp_connection_info *to)
{
    /* Without this a consumer whose queue is deleted hears nothing, ever. */
    amqp_table_entry_t cancel = {.key = amqp_cstring_bytes("consumer_cancel_notify"),
                                 .value = {.kind = AMQP_FIELD_KIND_BOOLEAN, .value.boolean = 1}};
    amqp_table_t capabilities = {.num_entries = 1, .entries = &cancel};
    amqp_table_entry_t entry = {.key = amqp_cstring_bytes("capabilities"),
                                .value = {.kind = AMQP_FIELD_KIND_TABLE, .value.table = capabilities}};
    amqp_table_t properties = {.num_entries = 1, .entries = &entry};
    amqp_socket_t *socket = amqp_tcp_socket_new(w->connection);
    struct timeval limit = {.tv_sec = CONNECT_S};
    if (socket == NULL || amqp_socket_open_noblock(socket, to->host, to->port, &limit) != AMQP_STATUS_OK) {
        say(w, "cannot connect", w->queue);
        return false;
    }
    amqp_set_handshake_timeout(w->connection, &limit);
    amqp_set_rpc_timeout(w->connection, &limit);
    return is_normal(w,
                     amqp_login_with_properties(w->connection, to->vhost, 0, FRAME_MAX, HEARTBEAT_S,
                                                &properties, AMQP_SASL_METHOD_PLAIN, to->user, to->password),
                     "log in");
}

static bool consume(struct witness *w)
{
    amqp_channel_open(w->connection, CHANNEL);
    if (!is_normal(w, amqp_get_rpc_reply(w->connection), "open a channel"))
        return false;
    amqp_basic_qos(w->connection, CHANNEL, 0, PREFETCH, 0);
    if (!is_normal(w, amqp_get_rpc_reply(w->connection), "prefetch"))
        return false;
    amqp_basic_consume(w->connection, CHANNEL, amqp_cstring_bytes(w->queue), amqp_cstring_bytes("witness"), 0,
                       0, 0, amqp_empty_table);
    return is_normal(w, amqp_get_rpc_reply(w->connection), "consume");
}

static bool connect_once(struct witness *w)
{
    char *url = strdup(w->url); /* it is taken apart in place */
    struct amqp_connection_info to;
    if (url == NULL || amqp_parse_url(url, &to) != AMQP_STATUS_OK || to.ssl) {
        fprintf(stderr, "witness: --url is no plain amqp:// URL\n");
        exit(64);
    }
    w->connection = amqp_new_connection();
    if (w->connection == NULL)
        die("connection");
    bool good = log_in(w, &to) && consume(w);
    free(url);
    return good;
}

static void drop(struct witness *w)
{
    amqp_destroy_connection(w->connection);
    w->connection = NULL;
    w->pending = 0; /* the queue delivers them again */
}

static void reconnect(struct witness *w)
{
    while (!stopping && !connect_once(w)) {
        drop(w);
        poll(NULL, 0, BACK_OFF_MS);
    }
    if (stopping)
        return;
    fprintf(stderr, "witness: consuming %s\n", w->queue);
    w->trouble[0] = '\0';
    w->reconnects++;
}

/* --- the loop */

/* Each answer is one of its own where some are rejected, else the last one is for all. */
static bool answer(struct witness *w)
{
    int count = w->pending, status = AMQP_STATUS_OK;
    w->pending = 0;
    if (w->rejects == NULL)
        return amqp_basic_ack(w->connection, CHANNEL, w->taken[count - 1].tag, 1) == AMQP_STATUS_OK;
    for (int i = 0; i < count && status == AMQP_STATUS_OK; i++)
        status = w->taken[i].rejected ? amqp_basic_reject(w->connection, CHANNEL, w->taken[i].tag, 0)
                                      : amqp_basic_ack(w->connection, CHANNEL, w->taken[i].tag, 0);
    return status == AMQP_STATUS_OK;
}

/* Writes what has come, then answers it. False: the connection is lost. */
static bool flush(struct witness *w)
{
    write_lines(w);
    return w->pending == 0 || answer(w);
}

/* The next delivery, or nothing for a while. False: the connection is lost. */
static bool step(struct witness *w)
{
    struct timeval limit = {.tv_usec =
                                w->pending > 0 ? IDLE_US : 100000}; /* never 0: that may mean for ever */
    amqp_envelope_t envelope;
    amqp_maybe_release_buffers(w->connection);
    amqp_rpc_reply_t reply = amqp_consume_message(w->connection, &envelope, &limit, 0);
    if (reply.reply_type == AMQP_RESPONSE_NORMAL) {
        note(w, &envelope);
        amqp_destroy_envelope(&envelope);
        return w->pending < BATCH || flush(w);
    }
    if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION && reply.library_error == AMQP_STATUS_TIMEOUT)
        return flush(w);
    /* Anything but a delivery: the consumer was cancelled, or channel or connection closed. */
    say(w, "lost the consumer",
        reply.library_error != 0 ? amqp_error_string2(reply.library_error) : "closed");
    return false;
}

static void run(struct witness *w)
{
    reconnect(w);
    while (!stopping) {
        if (step(w))
            continue;
        write_lines(w);
        drop(w);
        poll(NULL, 0, BACK_OFF_MS);
        reconnect(w);
    }
    write_lines(w);
    if (w->connection != NULL) {
        flush(w);
        amqp_connection_close(w->connection, AMQP_REPLY_SUCCESS);
        drop(w);
    }
}

static const char **option_of(struct witness *w, const char *name)
{
    return strcmp(name, "--url") == 0       ? &w->url
           : strcmp(name, "--queue") == 0   ? &w->queue
           : strcmp(name, "--out") == 0     ? &w->out
           : strcmp(name, "--rejects") == 0 ? &w->rejects
                                            : NULL;
}

int main(int count, char **arguments)
{
    static struct witness w;
    for (int i = 1; i + 1 < count; i += 2) {
        const char **option = option_of(&w, arguments[i]);
        if (option != NULL)
            *option = arguments[i + 1];
    }
    if (count % 2 == 0 || count > 9 || w.url == NULL || w.queue == NULL || w.out == NULL) {
        fprintf(stderr,
                "usage: witness --url amqp://… --queue QUEUE --out FILE [--rejects classic|quorum]\n");
        return 64;
    }
    const struct sigaction end = {.sa_handler = stop}, ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGTERM, &end, NULL);
    sigaction(SIGINT, &end, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
    crc_prepare();
    open_file(&w);
    run(&w);
    fprintf(stderr, "witness: %" PRIu64 " deliveries over %" PRIu64 " connections\n", w.seen, w.reconnects);
    return 0;
}
