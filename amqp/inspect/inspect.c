#include "amqp/inspect/inspect.h"

#include "amqp/connection/broker_internal.h"
#include "core/base/clock.h"
#include "core/base/random.h"
#include "core/message/wire.h"
#include <stdio.h>
#include <string.h>

#define ECHO_ARENA 65536
#define WHAT_MAX 320
#define TRY_RIGHT "try a permission"

static bool is_local(const char *host)
{
    return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0;
}

int inspect_target(const char *url, struct inspect_target *out, struct err *e)
{
    struct broker_url parsed;
    int rc = broker_url_parse(url, &parsed, e);

    if (rc == 0) {
        snprintf(out->user, sizeof(out->user), "%s", parsed.user);
        snprintf(out->vhost, sizeof(out->vhost), "%s", parsed.vhost);
        out->tls = parsed.tls;
        out->hosts = (int)parsed.host_count;
        out->local = true;
        for (size_t i = 0; i < parsed.host_count; i++) {
            out->local &= is_local(parsed.hosts[i].name);
        }
        broker_host_address(&parsed.hosts[0], out->address, sizeof(out->address));
    } else {
        err_wrap(e, "amqp.url");
    }
    explicit_bzero(&parsed, sizeof(parsed));
    return rc;
}

void inspect_product(const struct broker *b, char *out, size_t out_size)
{
    snprintf(out, out_size, "%s", b->product);
}

int inspect_reopen(struct broker *b, struct err *e)
{
    if (b->gone) {
        return err_set(e, ERR_AWAY, "lost the connection to RabbitMQ at %s", b->address);
    }
    if (!b->dead) {
        return 0;
    }
    b->dead = false;
    b->next_seq = 0;
    return broker_open_channel(b, "open a channel again", e);
}

static struct broker_call call_of(amqp_method_number_t request, void *decoded, const char *what)
{
    return (struct broker_call){.channel = BROKER_CHANNEL,
                                .request = request,
                                .decoded = decoded,
                                .reply = request + 1,
                                .phase = BROKER_DECLARE,
                                .what = what};
}

/* A request: 1 fine, 0 refused with a closed channel that is open again, and why in *why; -1: error. */
static int ask_broker(struct broker *b, const struct broker_call *c, void **answer, struct err *why,
                      struct err *e)
{
    *why = (struct err){0};
    if (broker_begin(b, e)) {
        return -1;
    }
    if (broker_request(b, c, answer, why) == 0) {
        return 1;
    }
    if (b->gone || why->kind == ERR_AWAY) {
        return err_set(e, why->kind, "%s", why->text);
    }
    return inspect_reopen(b, e) ? -1 : 0;
}

bool inspect_is_missing(const struct err *e)
{
    return e->kind == ERR_NOT_FOUND && (strstr(e->text, "no queue") || strstr(e->text, "no exchange"));
}

int inspect_queue(struct broker *b, const char *name, struct inspect_queue *out, struct err *e)
{
    struct err why;
    char what[WHAT_MAX];

    *out = (struct inspect_queue){0};
    snprintf(what, sizeof(what), "look up queue '%s'", name);
    amqp_queue_declare_t m = {.queue = amqp_cstring_bytes(name), .passive = 1};
    const struct broker_call c = call_of(AMQP_QUEUE_DECLARE_METHOD, &m, what);
    void *answer;
    int rc = ask_broker(b, &c, &answer, &why, e);
    if (rc == 1) {
        const amqp_queue_declare_ok_t *ok = answer;
        *out = (struct inspect_queue){
            .exists = true, .ready = ok->message_count, .consumers = ok->consumer_count};
    }
    return rc == 0 && !inspect_is_missing(&why) ? err_set(e, why.kind, "%s", why.text) : rc < 0 ? -1 : 0;
}

int inspect_exchange(struct broker *b, const char *name, bool *exists, struct err *e)
{
    struct err why;

    amqp_exchange_declare_t m = {
        .exchange = amqp_cstring_bytes(name), .type = amqp_cstring_bytes("direct"), .passive = 1};
    const struct broker_call c = call_of(AMQP_EXCHANGE_DECLARE_METHOD, &m, "look up an exchange");
    int rc = ask_broker(b, &c, NULL, &why, e);
    *exists = rc == 1;
    return rc == 0 && why.kind != ERR_NOT_FOUND ? err_set(e, why.kind, "%s", why.text) : rc < 0 ? -1 : 0;
}

/* --- rights */

/* RabbitMQ looks at the permission first, and then finds the argument impossible: nothing is declared or
 * consumed, whether the thing exists or not. (rabbit_channel.erl, handle_method; tried with 3.10.) */
static int ask_impossible(struct broker *b, const struct inspect_subject *s, struct err *why, struct err *e)
{
    amqp_bytes_t name = amqp_cstring_bytes(s->name);
    amqp_table_entry_t entry = {.value = {.kind = AMQP_FIELD_KIND_I32, .value.i32 = -1}};
    const amqp_table_t args = {.num_entries = 1, .entries = &entry};

    if (s->right == INSPECT_CONFIGURE_EXCHANGE) {
        entry.key = amqp_cstring_bytes("alternate-exchange"); /* a number is no name */
        amqp_exchange_declare_t m = {
            .exchange = name, .type = amqp_cstring_bytes("fanout"), .durable = 1, .arguments = args};
        const struct broker_call c = call_of(AMQP_EXCHANGE_DECLARE_METHOD, &m, TRY_RIGHT);
        return ask_broker(b, &c, NULL, why, e);
    }
    if (s->right == INSPECT_CONFIGURE_QUEUE) {
        entry.key = amqp_cstring_bytes("x-max-length"); /* negative */
        amqp_queue_declare_t m = {.queue = name, .durable = 1, .arguments = args};
        const struct broker_call c = call_of(AMQP_QUEUE_DECLARE_METHOD, &m, TRY_RIGHT);
        return ask_broker(b, &c, NULL, why, e);
    }
    entry.key = amqp_cstring_bytes("x-priority"); /* a text is no number */
    entry.value =
        (amqp_field_value_t){.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = amqp_cstring_bytes("none")};
    amqp_basic_consume_t m = {
        .queue = name, .consumer_tag = amqp_cstring_bytes("postdate doctor"), .arguments = args};
    const struct broker_call c = call_of(AMQP_BASIC_CONSUME_METHOD, &m, TRY_RIGHT);
    return ask_broker(b, &c, NULL, why, e);
}

/* A binding of this key does not exist, and removing what does not exist succeeds. */
static int ask_unbind(struct broker *b, const struct inspect_subject *s, struct err *why, struct err *e)
{
    const amqp_bytes_t no_key = amqp_cstring_bytes("postdate doctor: no such binding");
    amqp_bytes_t name = amqp_cstring_bytes(s->name), by = amqp_cstring_bytes(s->by);

    if (s->right == INSPECT_WRITE_QUEUE) {
        amqp_queue_unbind_t m = {.queue = name, .exchange = by, .routing_key = no_key};
        const struct broker_call c = call_of(AMQP_QUEUE_UNBIND_METHOD, &m, TRY_RIGHT);
        return ask_broker(b, &c, NULL, why, e);
    }
    amqp_exchange_unbind_t m = {.destination = name, .source = by, .routing_key = no_key};
    struct broker_call c = call_of(AMQP_EXCHANGE_UNBIND_METHOD, &m, TRY_RIGHT);
    c.reply = AMQP_EXCHANGE_UNBIND_OK_METHOD; /* not the next number, for once */
    return ask_broker(b, &c, NULL, why, e);
}

int inspect_right(struct broker *b, const struct inspect_subject *s, struct err *e)
{
    struct err why;
    bool binding = s->right == INSPECT_WRITE_QUEUE || s->right == INSPECT_WRITE_EXCHANGE;
    int rc = binding ? ask_unbind(b, s, &why, e) : ask_impossible(b, s, &why, e);
    if (rc != 0) {
        return rc;
    }
    return why.kind == ERR_PERMISSION ? 0 : 1;
}

/* --- one message there and back */

static int declare_own_queue(struct broker *b, char *name, size_t name_size, struct err *e)
{
    struct err why;

    snprintf(name, name_size, "postdate.doctor.%08x%08x", random_u32(), random_u32());
    amqp_queue_declare_t m = {.queue = amqp_cstring_bytes(name), .exclusive = 1, .auto_delete = 1};
    const struct broker_call c = call_of(AMQP_QUEUE_DECLARE_METHOD, &m, "declare an exclusive queue");
    int rc = ask_broker(b, &c, NULL, &why, e);
    return rc == 0 ? err_set(e, why.kind, "%s", why.text) : rc < 0 ? -1 : 0;
}

static int publish_empty(struct broker *b, const char *queue, struct err *e)
{
    struct buf raw;
    const struct wire_properties p = {.flags = WIRE_DELIVERY_MODE, .delivery_mode = 1};

    buf_init(&raw, 64);
    wire_properties_write(&p, &raw);
    int rc = broker_publish(
        b, &(struct broker_message){.routing_key = bytes_of_str(queue), .properties = buf_bytes(&raw)}, NULL,
        e);
    buf_free(&raw);
    return rc ? -1 : broker_flush(b, e);
}

/* A message on its way to RabbitMQ and back. */
struct echo {
    struct broker *broker;
    int timeout_ms; /* for each event */
    struct arena arena;
    struct broker_event event; /* the last one, in the arena */
};

/* Until an event of that kind comes. 1 it came, 0 it did not in time (or the broker is blocked). */
static int wait_event(struct echo *echo, enum broker_event_kind kind, struct inspect_echo *out, struct err *e)
{
    int64_t end_ns = clock_monotonic_ns() + echo->timeout_ms * INT64_C(1000000), now_ns;

    while ((now_ns = clock_monotonic_ns()) < end_ns) {
        int left_ms = (int)((end_ns - now_ns) / 1000000) + 1;
        if (broker_next_event(echo->broker, &echo->arena, 0, left_ms, &echo->event, e)) {
            return -1;
        }
        if (echo->event.kind == kind) {
            return 1;
        }
        if (echo->event.kind == BROKER_EVENT_BLOCKED) {
            out->blocked = true;
            bytes_printable(echo->event.text, out->reason, sizeof(out->reason));
            return 0;
        }
    }
    return 0;
}

static void read_stamp(struct bytes raw, struct inspect_echo *out)
{
    struct wire_properties p;
    struct wire_field f;
    struct err ignored;

    if (wire_properties_read(raw, &p, &ignored) != 0 || !wire_find(p.headers, "timestamp_in_ms", &f) ||
        !wire_field_int(&f, &out->stamped_ms)) {
        out->stamped_ms = -1;
    }
}

int inspect_echo(struct broker *b, int timeout_ms, struct inspect_echo *out, struct err *e)
{
    char queue[48];
    struct echo echo = {.broker = b, .timeout_ms = timeout_ms};

    *out = (struct inspect_echo){.stamped_ms = -1};
    arena_init(&echo.arena, ECHO_ARENA);
    int rc = declare_own_queue(b, queue, sizeof(queue), e) || broker_confirm_select(b, e) ||
                     publish_empty(b, queue, e)
                 ? -1
                 : wait_event(&echo, BROKER_EVENT_ACK, out, e);
    if (rc == 1) {
        rc = broker_consume(b, queue, "postdate doctor", 1, e)
                 ? -1
                 : wait_event(&echo, BROKER_EVENT_DELIVERY, out, e);
    }
    if (rc == 1) {
        read_stamp(echo.event.properties, out);
    } else if (rc == 0 && !out->blocked) {
        rc = err_set(e, ERR_BUSY, "RabbitMQ at %s did not take and return a message within %d s", b->address,
                     timeout_ms / 1000);
    }
    arena_free(&echo.arena);
    return rc < 0 ? -1 : 0;
}
