#include "amqp/inspect/inspect.h"

#include "amqp/connection/broker_internal.h"
#include "core/base/names.h"
#include "core/message/delay.h"
#include "core/message/wire.h"
#include <stdio.h>
#include <string.h>

#define ECHO_ARENA 65536

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
        for (size_t i = 0; i < parsed.host_count; i++)
            out->local &= is_local(parsed.hosts[i].name);
        broker_host_address(&parsed.hosts[0], out->address, sizeof(out->address));
    } else {
        err_wrap(e, "amqp.url");
    }
    explicit_bzero(&parsed, sizeof(parsed));
    return rc;
}

int inspect_login(const char *url, char *out, size_t out_size, struct err *e)
{
    struct broker_url parsed;
    int rc = broker_url_parse(url, &parsed, e);
    if (rc == 0)
        snprintf(out, out_size, "%s:%s", parsed.user, parsed.password);
    explicit_bzero(&parsed, sizeof(parsed));
    return rc;
}

void inspect_product(const struct broker *b, char *out, size_t out_size)
{
    snprintf(out, out_size, "%s", b->product);
}

/* The result of a request. 1: success; 0: refused by closing the channel, which was reopened; -1: the
 * connection is lost, or no answer. */
static int outcome_of(struct broker *b, int rc, const struct err *why, struct err *e)
{
    if (rc == 0)
        return 1;
    if (b->gone || why->kind == ERR_AWAY)
        return err_set(e, why->kind, "%s", why->text);
    return broker_recover(b, e) != 0 ? -1 : 0;
}

bool inspect_is_missing(const struct err *e)
{
    return e->kind == ERR_NOT_FOUND && (strstr(e->text, "no queue") || strstr(e->text, "no exchange"));
}

int inspect_queue(struct broker *b, const char *name, struct inspect_queue *out, struct err *e)
{
    struct err why;
    *out = (struct inspect_queue){0};
    int rc = outcome_of(b, broker_look_at_queue(b, name, &out->ready, &out->consumers, &why), &why, e);
    out->exists = rc == 1;
    return rc == 0 && !inspect_is_missing(&why) ? err_set(e, why.kind, "%s", why.text) : rc < 0 ? -1 : 0;
}

int inspect_exchange(struct broker *b, const char *name, bool *exists, struct err *e)
{
    struct err why;
    int there = broker_has_exchange(b, name, &why);
    *exists = there > 0;
    if (there >= 0)
        return 0;
    return outcome_of(b, there, &why, e) == 0 ? err_set(e, why.kind, "%s", why.text) : -1;
}

/* --- rights */

static int try_reading(struct broker *b, const char *queue, struct err *why)
{
    amqp_table_entry_t priority = {
        .key = amqp_cstring_bytes("x-priority"), /* a text is no number */
        .value = {.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = amqp_cstring_bytes("none")}};
    amqp_basic_consume_t m = {.queue = amqp_cstring_bytes(queue),
                              .consumer_tag = amqp_cstring_bytes("postdate doctor"),
                              .arguments = {.num_entries = 1, .entries = &priority}};
    const struct broker_call c = {.channel = BROKER_CHANNEL,
                                  .request = AMQP_BASIC_CONSUME_METHOD,
                                  .decoded = &m,
                                  .reply = AMQP_BASIC_CONSUME_OK_METHOD,
                                  .phase = BROKER_DECLARE,
                                  .what = "try a permission"};
    return broker_begin(b, why) ? -1 : broker_request(b, &c, NULL, why);
}

/* RabbitMQ looks at the permission first, and then finds the argument impossible: nothing is declared or
 * consumed, whether the thing exists or not. (rabbit_channel.erl, handle_method; tried with 3.10.) A binding
 * with this argument does not exist, and removing what does not exist succeeds. */
static int try_right(struct broker *b, const struct inspect_subject *s, struct err *why)
{
    const struct broker_exchange x = {
        .name = s->name, .type = "fanout", .args = BROKER_ARGS(BROKER_NUMBER("alternate-exchange", -1))};
    const struct broker_binding missing = {s->name, s->by, NULL,
                                           BROKER_ARGS(BROKER_TEXT("postdate doctor", "no such binding"))};
    switch (s->right) {
    case INSPECT_CONFIGURE_EXCHANGE:
        return broker_declare_exchange_as(b, &x, why);
    case INSPECT_CONFIGURE_QUEUE:
        return broker_declare_queue(b, s->name, BROKER_ARGS(BROKER_NUMBER("x-max-length", -1)), why);
    case INSPECT_READ_QUEUE:
        return try_reading(b, s->name, why);
    case INSPECT_WRITE_QUEUE:
        return broker_unbind_queue(b, &missing, why);
    default:
        return broker_unbind_exchange(b, &missing, why);
    }
}

int inspect_right(struct broker *b, const struct inspect_subject *s, struct err *e)
{
    struct err why;
    int rc = outcome_of(b, try_right(b, s, &why), &why, e);
    return rc != 0 ? rc : why.kind != ERR_PERMISSION;
}

/* --- one message there and back */

static int publish_empty(struct broker *b, const char *queue, struct err *e)
{
    struct buf raw;
    buf_init(&raw, 64);
    wire_properties_write(&(struct wire_properties){.flags = WIRE_DELIVERY_MODE, .delivery_mode = 1}, &raw);
    return broker_publish_to_queue(b, queue, &raw, (struct bytes){0}, NULL, e);
}

int inspect_echo(struct broker *b, int timeout_ms, struct inspect_echo *out, struct err *e)
{
    const unsigned blocked = 1u << BROKER_EVENT_BLOCKED;
    char queue[NAMES_SIZE];
    struct arena arena;
    struct broker_event ev = {.kind = BROKER_EVENT_NONE};
    struct wire_field f;
    *out = (struct inspect_echo){.stamped_ms = -1};
    arena_init(&arena, ECHO_ARENA);
    names_random(broker_names.doctor, queue);
    int rc = broker_declare_exclusive_queue(b, queue, NULL, e) || broker_confirm_select(b, e) ||
                     publish_empty(b, queue, e)
                 ? -1
                 : broker_await_event(b, blocked | 1u << BROKER_EVENT_ACK, timeout_ms, &arena, &ev, e);
    if (rc == 1 && ev.kind == BROKER_EVENT_ACK)
        rc = broker_consume(b, queue, "postdate doctor", 1, e)
                 ? -1
                 : broker_await_event(b, blocked | 1u << BROKER_EVENT_DELIVERY, timeout_ms, &arena, &ev, e);
    if (rc == 1 && ev.kind == BROKER_EVENT_BLOCKED) {
        out->blocked = true;
        bytes_printable(ev.text, out->reason, sizeof out->reason);
    } else if (rc == 1) {
        if (!wire_find_header(ev.properties, STAMP_HEADER, &f) || !wire_field_int(&f, &out->stamped_ms))
            out->stamped_ms = -1;
    } else if (rc == 0) {
        rc = err_set(e, ERR_BUSY, "RabbitMQ at %s did not accept and deliver a test message within %d s",
                     b->address, timeout_ms / 1000);
    }
    arena_free(&arena);
    return rc < 0 ? -1 : 0;
}
