/* From a connected socket to an open channel.
 *
 * Frames are ours (broker_frames.c), so the handshake is. The library's own takes any frame_max that the
 * server names, gives its output buffer that size, and then writes behind its end; rabbitmq-c 0.11 does, and
 * later versions do. Source: AMQP 0-9-1 specification, 2.2.4 and 4.2.2. */
#include "amqp/connection/broker_internal.h"
#include "core/base/clock.h"
#include "core/base/version.h"
#include <stdio.h>
#include <string.h>

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
                       "cannot %s: RabbitMQ at %s wants frames of at most %u bytes (AMQP: %d or more)",
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

int broker_login(struct broker *b, const struct broker_options *o, const struct broker_url *url,
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
