
#include "amqp/inspect/policy_trial.h"
#include "core/base/buf.h"
#include "core/base/clock.h"
#include "core/base/duration.h"
#include "core/base/names.h"
#include "core/message/ttl_ladder.h"
#include "core/message/wire.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POLICY_ROUND_EVERY_MS 5000
#define POLICY_ROUND_COUNT 16   /* messages of a round … */
#define POLICY_ROUND_BYTES 4096 /* … and their size: a shorter queue would not do */

#define ROUND_TTL "100"
#define ROUND_MS 10000 /* a busy broker answers late */
#define ARENA_BYTES (1 << 18)

/* After how long each is renewed: a policy with a shorter time-to-live is found, at the latest, in twice as
 * long. */
static const int64_t renew_ms[POLICY_SENTINELS] = {60000, 600000, 7200000, 100000000};

void policy_trial_init(struct policy_trial *p)
{
    *p = (struct policy_trial){.serial = 0};
    arena_init(&p->arena, ARENA_BYTES);
}

void policy_trial_free(struct policy_trial *p)
{
    arena_free(&p->arena);
}

/* As a rung of the ladder (transport.c) that holds messages for longer than any. */
static int declare_like_rung(struct policy_trial *p, const char *queue, struct err *e)
{
    return broker_declare_exclusive_queue(p->broker, queue,
                                          BROKER_ARGS(BROKER_TEXT("x-queue-type", "classic"),
                                                      BROKER_NUMBER("x-message-ttl", TTL_LADDER_MAX_DELAY_MS),
                                                      BROKER_TEXT("x-dead-letter-exchange", p->sink),
                                                      BROKER_TEXT("x-overflow", "reject-publish")),
                                          e);
}

struct trial_message {
    const char *queue, *type;
    const char *expiration; /* ms, or NULL: none */
    size_t size;
};

static int publish_trial(struct policy_trial *p, const struct trial_message *m, uint64_t *tag, struct err *e)
{
    static const uint8_t filling[POLICY_ROUND_BYTES];
    struct buf raw;
    struct wire_properties w = {
        .flags = WIRE_DELIVERY_MODE | WIRE_TYPE, .delivery_mode = 1, .type = bytes_of_str(m->type)};
    if (m->expiration) {
        w.flags |= WIRE_EXPIRATION;
        w.expiration = bytes_of_str(m->expiration);
    }
    buf_init(&raw, 256);
    wire_properties_write(&w, &raw);
    return broker_publish_to_queue(p->broker, m->queue, &raw, bytes_of(filling, m->size), tag, e);
}

/* --- sentinels */
static int place_sentinel(struct policy_trial *p, struct policy_sentinel *s, struct err *e)
{
    char type[16];
    if (s->queue[0] != '\0' && broker_delete_queue(p->broker, s->queue, e))
        return -1;
    names_random(broker_names.watch_long, s->queue);
    s->serial = ++p->serial;
    s->placed_ms = clock_monotonic_ms();
    snprintf(type, sizeof type, "s%" PRIu32, s->serial);
    const struct trial_message m = {.queue = s->queue, .type = type, .size = 1};
    return declare_like_rung(p, s->queue, e) || publish_trial(p, &m, NULL, e) ? -1 : 0;
}

/* A message lived longer than the TTL that was found before. */
static void note_lifetime(struct policy_trial *p, int64_t lived_ms)
{
    if (p->finding.ttl_ms > 0 && lived_ms > p->finding.ttl_ms + p->finding.ttl_ms / 4 + 1000)
        p->finding.ttl_ms = 0;
}

static int renew_sentinel(struct policy_trial *p, struct policy_sentinel *s, struct err *e)
{
    uint32_t count;
    struct err why = {0};
    if (broker_look_at_queue(p->broker, s->queue, &count, NULL, &why)) {
        p->finding.expires |= why.kind == ERR_NOT_FOUND;
        return err_set(e, ERR_AWAY, "%s", why.text);
    }
    p->finding.expires = false;
    return place_sentinel(p, s, e);
}

static int watch_sentinels(struct policy_trial *p, struct err *e)
{
    for (size_t i = 0; i < POLICY_SENTINELS; i++) {
        struct policy_sentinel *s = &p->sentinels[i];
        int64_t lived_ms = clock_monotonic_ms() - s->placed_ms;
        if (s->placed_ms)
            note_lifetime(p, lived_ms);
        if (s->placed_ms ? lived_ms >= renew_ms[i] && renew_sentinel(p, s, e) : place_sentinel(p, s, e))
            return -1;
    }
    return 0;
}

/* --- rounds */
static int begin_round(struct policy_trial *p, struct err *e)
{
    char type[16];
    p->round_ms = clock_monotonic_ms();
    p->unconfirmed = (1u << POLICY_ROUND_COUNT) - 1;
    p->accepted = p->back = 0;
    p->refused = p->rewritten = false;
    p->open_round = true;
    p->round = ++p->serial;
    snprintf(type, sizeof type, "r%" PRIu32, p->round);
    const struct trial_message m = {
        .queue = p->quick, .type = type, .expiration = ROUND_TTL, .size = POLICY_ROUND_BYTES};
    for (int i = 0; i < POLICY_ROUND_COUNT; i++) {
        uint64_t tag;
        if (publish_trial(p, &m, &tag, e))
            return -1;
        if (i == 0)
            p->first_tag = tag;
    }
    return 0;
}

static void on_confirm(struct policy_trial *p, const struct broker_event *ev, bool accepted)
{
    for (unsigned i = 0; i < POLICY_ROUND_COUNT; i++) {
        uint64_t tag = p->first_tag + i;
        bool meant = ev->multiple ? tag <= ev->tag : tag == ev->tag;
        if (!meant || !(p->unconfirmed & 1u << i))
            continue;
        p->unconfirmed &= ~(1u << i);
        p->accepted += accepted;
        p->refused |= !accepted;
    }
}

static void on_delivery(struct policy_trial *p, const struct broker_event *ev)
{
    struct wire_properties w;
    char type[16];
    if (wire_properties_read(ev->properties, &w, NULL) != 0 || w.type.len >= sizeof type || w.type.len < 2)
        return;
    memcpy(type, w.type.data, w.type.len);
    type[w.type.len] = '\0';
    uint32_t serial = (uint32_t)strtoul(type + 1, NULL, 10);
    if (type[0] == 's') {
        for (size_t i = 0; i < POLICY_SENTINELS; i++) {
            struct policy_sentinel *s = &p->sentinels[i];
            if (s->serial != serial || !s->placed_ms)
                continue;
            int64_t lived_ms = clock_monotonic_ms() - s->placed_ms;
            if (p->finding.ttl_ms == 0 || lived_ms < p->finding.ttl_ms)
                p->finding.ttl_ms = lived_ms > 0 ? lived_ms : 1;
            s->placed_ms = 0; /* another one shows when the policy was removed */
        }
    } else if (p->open_round && serial == p->round) {
        p->back++;
        p->rewritten |= !bytes_equal_str(ev->routing_key, p->quick);
    }
}

/* 1: it has ended. */
static int end_round(struct policy_trial *p, struct err *e)
{
    if (!p->open_round)
        return 0;
    bool all = p->unconfirmed == 0 && p->back >= p->accepted;
    if (!all && clock_monotonic_ms() - p->round_ms > ROUND_MS) {
        /* They do not come: is there a queue at all? */
        uint32_t count;
        struct err why = {0};
        if (broker_look_at_queue(p->broker, p->quick, &count, NULL, &why))
            p->finding.expires |= why.kind == ERR_NOT_FOUND;
        return err_set(e, ERR_AWAY, "RabbitMQ released %d of %d test messages that were to expire at once",
                       p->back, POLICY_ROUND_COUNT);
    }
    if (!all)
        return 0;
    p->open_round = false;
    p->finding.length = p->refused;
    p->finding.routing_key = p->rewritten && p->back > 0;
    return 1;
}

/* --- */
int policy_trial_begin(struct policy_trial *p, struct broker *b, struct err *e)
{
    p->broker = b;
    p->open_round = false;
    p->round_ms = 0;
    for (size_t i = 0; i < POLICY_SENTINELS; i++)
        p->sentinels[i] = (struct policy_sentinel){.placed_ms = 0};
    names_random(broker_names.watch_back, p->sink);
    names_random(broker_names.watch_short, p->quick);
    snprintf(p->reply, sizeof p->reply, "%s", p->sink);
    const struct broker_exchange sink = {
        .name = p->sink, .type = "fanout", .transient = true, .auto_delete = true};
    const struct broker_binding all = {.to = p->reply, .from = p->sink};
    return broker_declare_exchange_as(b, &sink, e) || broker_declare_exclusive_queue(b, p->reply, NULL, e) ||
                   broker_bind_queue(b, &all, e) || declare_like_rung(p, p->quick, e) ||
                   broker_confirm_select(b, e) ||
                   broker_consume(b, p->reply, "postdate.watch", 4 * POLICY_ROUND_COUNT, e)
               ? -1
               : 0;
}

int policy_trial_run(struct policy_trial *p, int wait_ms, struct err *e)
{
    int64_t end_ms = clock_monotonic_ms() + wait_ms, left_ms = wait_ms;
    int rc = 0;
    bool due = p->round_ms == 0 || clock_monotonic_ms() - p->round_ms >= POLICY_ROUND_EVERY_MS;
    if (!p->open_round && due && (begin_round(p, e) || watch_sentinels(p, e)))
        return -1;
    struct broker_event ev = {.kind = BROKER_EVENT_ACK};
    while (rc == 0 && (left_ms > 0 || ev.kind != BROKER_EVENT_NONE)) {
        arena_reset(&p->arena);
        if (broker_next_event(p->broker, &p->arena, POLICY_ROUND_BYTES, left_ms > 0 ? (int)left_ms : 0, &ev,
                              e))
            return -1;
        if (ev.kind == BROKER_EVENT_CANCELLED)
            return err_set(e, ERR_AWAY, "RabbitMQ cancelled the consumer of '%s'", p->reply);
        if (ev.kind == BROKER_EVENT_ACK || ev.kind == BROKER_EVENT_NACK)
            on_confirm(p, &ev, ev.kind == BROKER_EVENT_ACK);
        if (ev.kind == BROKER_EVENT_DELIVERY) {
            int64_t ttl_ms = p->finding.ttl_ms;
            on_delivery(p, &ev);
            if (broker_ack(p->broker, ev.tag, false, e))
                return -1;
            if (ttl_ms == 0 && p->finding.ttl_ms > 0)
                return 1; /* news */
        }
        rc = end_round(p, e);
        left_ms = end_ms - clock_monotonic_ms();
    }
    return rc;
}

/* --- a queue that is full */
#define OVERFLOW_TRIES 8 /* a quorum queue notices after one or two too many that it is full */
#define OVERFLOW_CONFIRM_MS 2000
#define OVERFLOW_UNUSED_MS 60000 /* then a dead program's queue goes */

/* 1: taken; 0: refused. */
static int offer_message(struct broker *b, const char *queue, struct arena *arena, struct err *e)
{
    struct buf raw;
    struct broker_event ev;
    buf_init(&raw, 64);
    wire_properties_write(&(struct wire_properties){.flags = WIRE_DELIVERY_MODE, .delivery_mode = 1}, &raw);
    if (broker_publish_to_queue(b, queue, &raw, bytes_of_str("x"), NULL, e))
        return -1;
    int rc = broker_await_event(b, 1u << BROKER_EVENT_ACK | 1u << BROKER_EVENT_NACK, OVERFLOW_CONFIRM_MS,
                                arena, &ev, e);
    if (rc == 0)
        return err_set(e, ERR_AWAY, "no confirm from RabbitMQ for a message to '%s' within %d s", queue,
                       OVERFLOW_CONFIRM_MS / 1000);
    return rc < 0 ? -1 : ev.kind == BROKER_EVENT_ACK;
}

int policy_trial_overflow(struct broker *b, bool *drops, struct err *e)
{
    const struct broker_arg *args = BROKER_ARGS(
        BROKER_TEXT("x-queue-type", "quorum"), BROKER_NUMBER("x-max-length", 1),
        BROKER_TEXT("x-overflow", "reject-publish"), BROKER_NUMBER("x-expires", OVERFLOW_UNUSED_MS));
    char queue[NAMES_SIZE];
    struct arena arena;
    names_random(broker_names.watch_full, queue);
    arena_init(&arena, 1 << 16);
    int taken = broker_declare_queue(b, queue, args, e) || broker_confirm_select(b, e) ? -1 : 1;
    for (int i = 0; i < OVERFLOW_TRIES && taken == 1; i++)
        taken = offer_message(b, queue, &arena, e);
    *drops = taken == 1;
    arena_free(&arena);
    return taken < 0 || broker_delete_queue(b, queue, e) ? -1 : 0;
}

/* --- The effects of a policy, and the remedy. */

bool policy_found(const struct policy_finding *f, bool last_hop, bool exit_waits)
{
    return (f->routing_key && last_hop) || (f->overflow && (last_hop || exit_waits)) || f->length ||
           f->expires || f->ttl_ms > 0;
}

static void add_word(char *out, size_t size, const char *text)
{
    size_t len = strlen(out);
    snprintf(out + len, size - len, "%s%s", len > 0 ? ", " : "", text);
}

const char *policy_describe(const struct policy_finding *f, char *out, size_t size)
{
    char span[40], text[120];
    out[0] = '\0';
    if (f->ttl_ms > 0) {
        snprintf(text, sizeof text, "messages expire after %s (message-ttl)",
                 duration_format_human(f->ttl_ms, span, sizeof span));
        add_word(out, size, text);
    }
    if (f->routing_key)
        add_word(out, size, "messages get another routing key (dead-letter-routing-key)");
    if (f->length)
        add_word(out, size, "queues accept only a few messages (max-length, max-length-bytes)");
    if (f->overflow)
        add_word(out, size, "quorum queues drop messages that they should reject (overflow)");
    if (f->expires)
        add_word(out, size, "queues are deleted (expires)");
    return out;
}

void policy_put_name(struct buf *out, const char *name)
{
    for (const char *c = name; *c != '\0'; c++) {
        if (strchr("\\^$.|?*+()[]{}", *c) != NULL)
            buf_put_u8(out, '\\');
        if (*c == '\'')
            buf_put_str(out, "'\\'");
        buf_put_u8(out, (uint8_t)*c);
    }
}

/* A policy needs a definition: this repeats an argument of the queues. */
const char *policy_remedy(const char *vhost, const char *intake_queue, char *out, size_t size)
{
    struct buf pattern;
    buf_init(&pattern, 1024);
    buf_put_u8(&pattern, '^');
    policy_put_name(&pattern, broker_names.own);
    if (strncmp(intake_queue, broker_names.own, strlen(broker_names.own)) != 0) {
        buf_put_str(&pattern, "|^");
        policy_put_name(&pattern, intake_queue);
    }
    snprintf(out, size,
             "rabbitmqctl set_policy -p '%s' --apply-to queues --priority 1000000 %s '%.*s' "
             "'{\"overflow\":\"reject-publish\"}'; it does not override an operator policy, which must not "
             "match these names (rabbitmqctl list_operator_policies -p '%s')",
             vhost, broker_names.prefix, (int)pattern.len, (const char *)pattern.data, vhost);
    buf_free(&pattern);
    return out;
}

const char *policy_cure(const char *vhost, const char *queue, char *out, size_t size)
{
    struct buf pattern;
    buf_init(&pattern, 1024);
    policy_put_name(&pattern, queue);
    /* The queues' own arguments for dead letters count before these. */
    snprintf(out, size,
             "rabbitmqctl set_policy -p '%s' --apply-to queues --priority 1000001 %s-cure '^%.*s' "
             "'{\"delivery-limit\":20,\"dead-letter-exchange\":\"\",\"dead-letter-routing-key\":\"%s\","
             "\"dead-letter-strategy\":\"at-least-once\",\"overflow\":\"reject-publish\"}'",
             vhost, broker_names.prefix, (int)pattern.len, (const char *)pattern.data, broker_names.rejected);
    buf_free(&pattern);
    return out;
}
