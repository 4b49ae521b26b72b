#include "core/message/reserved.h"

#include "core/base/names.h"
#include "core/message/dead_letter.h"
#include "core/message/wire.h"

#define DIRECT_REPLY_TO "amq.rabbitmq.reply-to"

bool reserved_queue(struct bytes name, const char *intake_queue)
{
    return bytes_start_with_str(name, broker_names.own) || bytes_start_with_str(name, intake_queue);
}

static bool is_delivery_exchange(struct bytes name, const struct accept_rules *rules)
{
    if (bytes_equal_str(name, rules->delivery_exchange) || bytes_equal_str(name, "postdate.delivery"))
        return true;
    for (size_t i = 0; i < rules->route_count; i++)
        if (bytes_equal_str(name, rules->routes[i].delivery_exchange))
            return true;
    return false;
}

bool reserved_exchange(struct bytes name, const struct accept_rules *rules)
{
    bool own = bytes_start_with_str(name, broker_names.own) ||
               bytes_equal_str(name, rules->intake_exchange) ||
               (rules->cell_exchange != NULL && bytes_equal_str(name, rules->cell_exchange));
    for (size_t i = 0; i < rules->route_count && !own; i++)
        own = bytes_equal_str(name, rules->routes[i].intake_exchange);
    return (own && !is_delivery_exchange(name, rules)) || bytes_equal_str(name, RETURN_EXCHANGE);
}

static bool is_cc(struct bytes name)
{
    return bytes_equal_str(name, "CC") || bytes_equal_str(name, "BCC");
}

/* The first reserved name in an array of names, or an empty view. Every header with these names is checked,
 * because it is unknown which of two RabbitMQ reads. */
static struct bytes find_in_headers(struct bytes headers, const char *intake_queue)
{
    struct wire_cursor c = wire_table(headers);
    struct wire_field f, item;
    while (wire_next(&c, &f) == 1) {
        struct wire_cursor items = wire_array(f.value);
        while (is_cc(f.name) && f.kind == 'A' && wire_next(&items, &item) == 1)
            if (reserved_queue(item.value, intake_queue))
                return item.value;
    }
    return (struct bytes){0};
}

/* As RabbitMQ writes it. From anything else its own dead-lettering dies, for a whole node. */
static bool has_odd_deaths(struct bytes headers)
{
    struct wire_cursor c = wire_table(headers);
    struct wire_field f, death;
    while (wire_next(&c, &f) == 1) {
        if (!bytes_equal_str(f.name, "x-death"))
            continue;
        struct wire_cursor deaths = wire_array(f.value);
        bool odd = f.kind != 'A';
        while (!odd && wire_next(&deaths, &death) == 1)
            odd = death.kind != 'F';
        if (odd)
            return true;
    }
    return false;
}

#define EXPIRATION_MAX_MS INT64_C(315360000000) /* RabbitMQ's: ten years */

static bool is_expiration(struct bytes text)
{
    int64_t ms = 0;
    size_t i = text.len > 1 && text.data[0] == '+';
    bool fits = text.len > 0;
    for (; fits && i < text.len; i++) {
        fits = text.data[i] >= '0' && text.data[i] <= '9';
        ms = ms * 10 + (text.data[i] - '0');
        fits = fits && ms <= EXPIRATION_MAX_MS;
    }
    return fits;
}

static int check_properties(const struct wire_properties *p, struct err *e)
{
    struct wire_cursor c = wire_table(p->headers);
    struct wire_field f;
    char shown[60];
    if ((p->flags & WIRE_EXPIRATION) && !is_expiration(p->expiration))
        return err_set(
            e, ERR_REJECT,
            "expiration: \"%s\" is no number of milliseconds that RabbitMQ accepts (allowed: 0 to %lld)",
            bytes_printable(p->expiration, shown, sizeof(shown)), (long long)EXPIRATION_MAX_MS);
    while (wire_next(&c, &f) == 1)
        if (is_cc(f.name) && f.kind != 'A')
            return err_set(
                e, ERR_REJECT,
                "headers: \"%s\" is no array of routing keys, and RabbitMQ accepts nothing else there",
                bytes_printable(f.name, shown, sizeof(shown)));
    return 0;
}

int reserved_check_properties(struct bytes properties, struct err *e)
{
    struct wire_properties p;
    return wire_properties_read(properties, &p, NULL) != 0 ? 0 : check_properties(&p, e);
}

int reserved_check(const struct message *m, const struct accept_rules *rules, struct err *e)
{
    const char *intake_queue = rules->intake_queue;
    char shown[120];
    struct bytes name = m->routing_key;
    struct wire_properties p;
    if (wire_properties_read(m->properties, &p, NULL) != 0)
        p = (struct wire_properties){0};
    if (bytes_equal_str(p.reply_to, DIRECT_REPLY_TO))
        return err_set(e, ERR_REJECT,
                       "reply_to: \"" DIRECT_REPLY_TO
                       "\" works only for the connection that publishes the request, and the gateway "
                       "publishes this one (allowed: the name of a queue)");
    if (check_properties(&p, e))
        return -1;
    if (has_odd_deaths(p.headers))
        return err_set(e, ERR_REJECT,
                       "headers: \"x-death\" is no array of tables, so RabbitMQ cannot dead-letter the "
                       "message (allowed: the value that RabbitMQ itself writes)");
    if (m->exchange.len > 0 && !reserved_exchange(m->exchange, rules))
        return 0;
    if (m->exchange.len > 0)
        return err_set(e, ERR_REJECT,
                       "exchange: \"%s\" is the gateway's own (allowed: delivery exchanges; of names that "
                       "begin with \"%s\" only \"%.60s\")",
                       bytes_printable(m->exchange, shown, sizeof(shown)), broker_names.own,
                       rules->delivery_exchange[0] ? rules->delivery_exchange : "postdate.delivery");
    if (!reserved_queue(name, intake_queue))
        name = find_in_headers(p.headers, intake_queue);
    if (name.len == 0)
        return 0;
    return err_set(
        e, ERR_REJECT,
        "routing key: the default exchange would route to the gateway's own queue \"%s\" (allowed: "
        "queues whose names do not begin with \"%s\" or \"%.60s\")",
        bytes_printable(name, shown, sizeof(shown)), broker_names.own, intake_queue);
}
