#include "core/message/accept.h"
#include "core/base/names.h"
#include "core/message/amqp10.h"
#include "core/message/delay.h"
#include "core/message/headers.h"
#include "core/message/reserved.h"
#include "core/message/wire.h"
#include "core/message/x_death.h"
#include <stdio.h>
#include <string.h>

/* The facts about one message, before its properties are rewritten. */
struct draft {
    const char *intake_queue;
    struct wire_properties properties;
    struct x_death death;
    struct delay delay;
    struct circle circle;
    struct bytes wanted_exchange, key; /* data NULL: it names none */
    bool has_hold;
    int hold, on_conflict; /* enum message_hold, on_conflict */
    struct bytes exchange; /* published to */
    struct bytes routing_key;
    bool by_death; /* as x-death says */
    bool by_type;  /* it goes back to the exchange that it was published to */
};

/* --- headers besides the delay: x-postdate-exchange, -key, -on-conflict and -hold. Headers of deliveries are
 * ignored here: a consumer that republishes a message keeps its x-postdate-id. */

bool accept_exchange_allowed(const struct accept_rules *rules, struct bytes exchange)
{
    for (size_t i = 0; i < rules->allow_count; i++) {
        if (glob_matches(bytes_of_str(rules->allow[i]), exchange))
            return true;
    }
    return false;
}

static int reject_value(const char *name, struct bytes value, const char *what, const char *allowed,
                        struct err *e)
{
    char shown[120];
    return err_set(e, ERR_REJECT, "%s: \"%s\" %s (allowed: %s)", name,
                   bytes_printable(value, shown, sizeof(shown)), what, allowed);
}

/* 1: the header is there and a string; 0: it isn't there. */
static int find_string(struct bytes headers, const char *name, const char *allowed, struct bytes *out,
                       struct err *e)
{
    struct wire_field f;
    if (!wire_find(headers, name, &f))
        return 0;
    if (f.kind != 'S')
        return err_set(e, ERR_REJECT, "%s: a value of AMQP type '%c' is not a string (allowed: %s)", name,
                       f.kind, allowed);
    *out = f.value;
    return 1;
}

/* The same for one of some words, whose number goes to *out. */
static int find_word(struct bytes headers, const char *name, const char *const words[], int *out,
                     struct err *e)
{
    char allowed[60] = "";
    struct bytes value = {0};
    for (size_t i = 0; words[i] != NULL; i++)
        snprintf(allowed + strlen(allowed), sizeof allowed - strlen(allowed), "%s%s", i > 0 ? ", " : "",
                 words[i]);
    int rc = find_string(headers, name, allowed, &value, e);
    if (rc <= 0)
        return rc;
    *out = bytes_find_word(value, words);
    return *out < 0 ? reject_value(name, value, "is unknown", allowed, e) : 1;
}

/* Patterns joined by ", " for an error text, cut where they do not fit. */
static const char *list_allowed(const struct accept_rules *rules, char *out, size_t out_size)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < rules->allow_count; i++) {
        const char *separator = i > 0 ? ", " : "";
        if (used + strlen(separator) + strlen(rules->allow[i]) + sizeof(", ...") > out_size) {
            snprintf(out + used, out_size - used, "...");
            return out;
        }
        used += (size_t)snprintf(out + used, out_size - used, "%s%s", separator, rules->allow[i]);
    }
    return out;
}

static int read_exchange(struct bytes headers, const struct accept_rules *rules, struct draft *d,
                         struct err *e)
{
    static const char allowed[] =
        "an exchange name of at most 255 bytes of UTF-8, \"\" is the default exchange";
    struct bytes name = {0};
    char patterns[200];
    int rc = find_string(headers, HEADER_EXCHANGE, allowed, &name, e);
    if (rc <= 0)
        return rc;
    if (name.len > MESSAGE_NAME_MAX || !bytes_is_text(name))
        return reject_value(HEADER_EXCHANGE, name, "is not an exchange name", allowed, e);
    if (!accept_exchange_allowed(rules, name))
        return reject_value(HEADER_EXCHANGE, name, "is not on the list delivery.allow",
                            list_allowed(rules, patterns, sizeof(patterns)), e);
    d->wanted_exchange = name;
    return 0;
}

static int read_key(struct bytes headers, struct bytes *key, struct err *e)
{
    static const char name[] = "x-postdate-key", allowed[] = "1 to 255 bytes of UTF-8 without NUL";
    int rc = find_string(headers, name, allowed, key, e);
    if (rc > 0 && (key->len == 0 || key->len > MESSAGE_NAME_MAX || !bytes_is_text(*key)))
        return reject_value(name, *key, "is not a key", allowed, e);
    return rc < 0 ? -1 : 0;
}

static int read_requests(struct bytes headers, const struct accept_rules *rules, struct draft *d,
                         struct err *e)
{
    static const char *const conflicts[] = {[ON_CONFLICT_KEEP] = "keep",
                                            [ON_CONFLICT_REPLACE] = "replace",
                                            [ON_CONFLICT_REJECT] = "reject",
                                            NULL};
    static const char *const holds[] = {[HOLD_GATEWAY] = "gateway", [HOLD_BROKER] = "broker", NULL};
    d->on_conflict = ON_CONFLICT_KEEP;
    if ((!d->by_type && read_exchange(headers, rules, d, e) != 0) || read_key(headers, &d->key, e) != 0 ||
        find_word(headers, "x-postdate-on-conflict", conflicts, &d->on_conflict, e) < 0)
        return -1;
    int rc = find_word(headers, "x-postdate-hold", holds, &d->hold, e);
    d->has_hold = rc > 0;
    return rc < 0 ? -1 : 0;
}

/* --- */

static int check_sizes(const struct accept_rules *rules, const struct accept_input *in, struct err *e)
{
    /* The reader skips a body that it finds too large: length without data. */
    if (in->body.len > rules->max_body || (in->body.len > 0 && !in->body.data))
        return err_set(e, ERR_REJECT, "the body has %zu bytes (allowed: at most %zu)", in->body.len,
                       rules->max_body);
    if (in->properties.len > rules->max_properties)
        return err_set(e, ERR_REJECT, "the properties and headers have %zu bytes (allowed: at most %zu)",
                       in->properties.len, rules->max_properties);
    return 0;
}

/* The exchange is internal: no client can publish to it. */
static bool expired_by_type(const struct accept_input *in)
{
    return bytes_equal_str(in->exchange, broker_names.expired);
}

/* True for a message that our intake queue sent to its second queue. x-death alone proves nothing: publishers
 * can send it too, and must not choose a [route] that way. */
static bool came_dead_lettered(const struct accept_rules *rules, const struct accept_input *in)
{
    struct bytes queue = bytes_of_str(rules->intake_queue);
    if (expired_by_type(in))
        return true;
    if (in->exchange.len != 0 || !bytes_start_with_str(in->routing_key, rules->intake_queue))
        return false;
    return bytes_equal_str(bytes_of(in->routing_key.data + queue.len, in->routing_key.len - queue.len),
                           ".expired");
}

static void restore_original(const struct accept_rules *rules, const struct accept_input *in, struct draft *d)
{
    struct wire_properties *p = &d->properties;
    struct death *death = &d->death.death;
    d->exchange = in->exchange;
    d->routing_key = in->routing_key;
    d->by_type = in->by_type || expired_by_type(in);
    x_death_read(p->headers, rules->intake_queue, &d->death);
    if (!d->death.found || !came_dead_lettered(rules, in)) {
        death->cc = (struct bytes){0};
        return;
    }
    d->by_death = death->exchange.data != NULL;
    if (d->by_death)
        d->exchange = death->exchange;
    if (death->routing_key.data)
        d->routing_key = death->routing_key;
    if (death->expiration.data && death->expiration.len <= MESSAGE_NAME_MAX &&
        !(p->flags & WIRE_EXPIRATION)) {
        p->expiration = death->expiration;
        p->flags |= WIRE_EXPIRATION;
    }
    struct wire_field f;
    if (wire_find(p->headers, "CC", &f))
        death->cc = (struct bytes){0};
}

/* Its way back is to be known. */
static int check_type(const struct draft *d, struct err *e)
{
    char shown[120];
    bool known = d->exchange.len > 0 && !bytes_equal_str(d->exchange, broker_names.expired);
    if (!d->by_type || (known && d->exchange.len <= MESSAGE_NAME_MAX && bytes_is_text(d->exchange)))
        return 0;
    return err_set(
        e, ERR_REJECT,
        "exchange: the message was published to the queue '%s' through \"%s\" (allowed: exchanges of the "
        "type x-delayed-message, through which it is delivered, with a name of at most 255 bytes of UTF-8)",
        broker_names.intake_delayed, bytes_printable(d->exchange, shown, sizeof(shown)));
}

static int check_routing_key(struct bytes key, struct err *e)
{
    char shown[120];
    if (key.len <= MESSAGE_NAME_MAX && bytes_is_text(key))
        return 0;
    return err_set(e, ERR_REJECT,
                   "routing key: \"%s\" cannot be stored (allowed: at most 255 bytes of UTF-8 without NUL)",
                   bytes_printable(key, shown, sizeof(shown)));
}

const struct accept_route *accept_route_of(const struct accept_rules *rules, struct bytes exchange)
{
    for (size_t i = 0; i < rules->route_count; i++) {
        if (bytes_equal_str(exchange, rules->routes[i].intake_exchange))
            return &rules->routes[i];
    }
    return NULL;
}

static struct bytes delivery_exchange(const struct accept_rules *rules, const struct draft *d,
                                      const struct accept_route *route)
{
    if (d->by_type)
        return d->exchange;
    if (d->wanted_exchange.data)
        return d->wanted_exchange;
    return bytes_of_str(route != NULL ? route->delivery_exchange : rules->delivery_exchange);
}

/* RabbitMQ before 4.0 takes an entry that a publisher wrote for its own, counts it up and keeps the rest. So
 * such a message may be led by a [route] only to where every publisher may send. */
static int check_route(const struct accept_rules *rules, const struct draft *d, struct bytes exchange,
                       struct err *e)
{
    char shown[120];
    if (!d->by_death || d->by_type || d->wanted_exchange.data ||
        bytes_equal_str(exchange, rules->delivery_exchange) || accept_exchange_allowed(rules, exchange))
        return 0;
    return err_set(e, ERR_REJECT,
                   "exchange: only x-death shows that the message came through the route to \"%s\", because "
                   "it expired in the intake, and a publisher can forge x-death (allowed then: exchanges "
                   "that delivery.allow lists)",
                   bytes_printable(exchange, shown, sizeof(shown)));
}

static bool is_removed(const struct draft *d, struct bytes name)
{
    return bytes_start_with_str(name, "x-opt-delivery-") || bytes_start_with_str(name, "x-postdate-") ||
           headers_is_of_delivery(name) || x_death_drops(&d->death, name);
}

static void put_headers(const struct draft *d, struct buf *out)
{
    struct wire_cursor c = wire_table(d->properties.headers);
    struct wire_field f;
    bool delayed = false;
    while (wire_next(&c, &f) == 1) {
        bool delays = bytes_equal_str(f.name, HEADER_X_DELAY);
        /* Of duplicates only the first one counted. */
        if (is_removed(d, f.name) || (delays && delayed))
            continue;
        delayed = delayed || delays;
        if (delays && d->delay.x_delay_ms != 0) {
            wire_put_int64(out, f.name, -d->delay.x_delay_ms);
        } else if (bytes_equal_str(f.name, "x-death")) {
            x_death_put_rest(&f, d->intake_queue, out);
        } else {
            buf_put_bytes(out, f.entry);
        }
    }
    circle_put(&d->circle, out);
    if (d->death.death.cc.len > 0)
        wire_put_field(out, bytes_of_str("CC"), 'A', d->death.death.cc);
    if (d->properties.user_id.len > 0)
        wire_put_string(out, bytes_of_str(HEADER_USER_ID), d->properties.user_id);
}

/* Writes the properties to be stored into the arena. */
static int encode_properties(const struct draft *d, struct arena *arena, struct bytes *out, struct err *e)
{
    enum { ADDED_MAX = 1024 };
    struct wire_properties p = d->properties;
    struct buf raw;
    /* CC can be written once more than it came, inside x-death. */
    buf_init(&raw, 2 * p.headers.len + 16 * ADDED_MAX);
    /* RabbitMQ closes the channel for a user_id that isn't the publishing connection's own. */
    p.flags &= (uint16_t)~WIRE_USER_ID;
    p.flags |= WIRE_HEADERS;
    size_t headers = wire_properties_begin(&p, &raw);
    put_headers(d, &raw); /* perhaps none: a redelivery may have had only RabbitMQ's headers, and must give
                             the same result as the first delivery */
    return wire_properties_move(&p, headers, &raw, arena, out, e);
}

/* Where it has a spread, its due time is drawn, and the deadline must lie after the last one that could be.
 */
static int read_times(struct draft *d, struct bytes exchange, const struct delay_clock *clock,
                      int64_t *deadline_ms, struct err *e)
{
    int64_t spread_ms, now_ms = clock->now_ms, from_ms = d->delay.due_ms > now_ms ? d->delay.due_ms : now_ms;
    struct bytes headers = d->properties.headers;
    const struct spread_name name = {
        .key = d->key, .exchange = exchange, .message_id = d->properties.message_id};
    if (spread_read(headers, clock->max_delay_ms, &spread_ms, e) != 0 ||
        spread_check(SPREAD_HEADER, spread_ms, from_ms - now_ms, clock->max_delay_ms, e) != 0)
        return -1;
    if (spread_ms > 0)
        d->delay.due_ms = from_ms + spread_draw(&name, spread_ms);
    return deadline_read(headers, from_ms + spread_ms, deadline_ms, e);
}

int accept_message(const struct accept_rules *rules, const struct accept_input *in, int64_t now_ms,
                   struct arena *arena, struct message *out, struct err *e)
{
    struct draft d = {.intake_queue = rules->intake_queue};
    struct delay_clock clock = {
        .now_ms = now_ms,
        .max_delay_ms = rules->max_delay_ms,
        .broker_stamps = rules->broker_stamps,
        .stamp_behind_ms = rules->stamp_behind_ms,
    };
    if (check_sizes(rules, in, e) != 0 || wire_properties_read(in->properties, &d.properties, e) != 0)
        return -1;
    struct bytes as_sent = d.properties.headers;
    if (amqp10_lift(d.properties.headers, arena, &d.properties.headers, e) != 0 ||
        headers_lower(d.properties.headers, arena, &d.properties.headers, e) != 0 ||
        headers_check_names(d.properties.headers, e) != 0)
        return -1;
    restore_original(rules, in, &d);
    struct bytes headers = d.properties.headers;
    const struct accept_route *route = d.by_type ? NULL : accept_route_of(rules, d.exchange);
    clock.unasked_ms = route != NULL ? route->delay_ms : 0;
    clock.by_type = d.by_type;
    if (check_type(&d, e) != 0 || check_routing_key(d.routing_key, e) != 0 ||
        delay_read(d.by_type ? as_sent : headers, &clock, &d.delay, e) != 0 ||
        read_requests(headers, rules, &d, e) != 0 ||
        circle_read(headers, d.delay.later, rules->intake_queue, &d.circle, e) != 0)
        return -1;

    int64_t deadline_ms;
    struct bytes properties;
    struct bytes exchange = delivery_exchange(rules, &d, route);
    if (read_times(&d, exchange, &clock, &deadline_ms, e) != 0 ||
        encode_properties(&d, arena, &properties, e) != 0)
        return -1;
    *out = (struct message){
        .due_ms = d.delay.due_ms,
        .counted_from_ms = d.delay.from_now ? now_ms : 0,
        .deadline_ms = deadline_ms,
        .exchange = exchange,
        .routing_key = d.routing_key,
        .key = d.key,
        .properties = properties,
        .body = in->body,
        .on_conflict = (enum on_conflict)d.on_conflict,
    };
    const struct hold_request hold = {.has_key = out->key.len > 0,
                                      .has_deadline = deadline_ms > 0,
                                      .has_wish = d.has_hold,
                                      .wish = (enum message_hold)d.hold};
    out->hold = hold_policy_decide(rules->hold, &hold);
    return check_route(rules, &d, out->exchange, e) != 0 ? -1 : reserved_check(out, rules, e);
}
