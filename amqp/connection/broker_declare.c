/* Requests that wait for their answer: declaring, binding, consuming, confirm mode; and acknowledgements. */
#include "amqp/connection/broker_internal.h"
#include "core/base/clock.h"
#include <stdio.h>
#include <string.h>

#define ARGS_MAX 16
#define WHAT_MAX 320
#define FIRST_CHECK_MS 1000

static struct broker_call call_of(amqp_method_number_t request, void *decoded, amqp_method_number_t reply,
                                  const char *what)
{
    return (struct broker_call){.channel = BROKER_CHANNEL,
                                .request = request,
                                .decoded = decoded,
                                .reply = reply,
                                .phase = BROKER_DECLARE,
                                .what = what};
}

/* Of a request's number: its answer's is the next one. */
static int request_method(struct broker *b, amqp_method_number_t number, void *decoded, const char *what,
                          struct err *e)
{
    const struct broker_call c = call_of(number, decoded, number + 1, what);

    return broker_request(b, &c, NULL, e);
}

static int check_name(const char *kind, const char *name, struct err *e)
{
    if (strlen(name) > BROKER_NAME_MAX) {
        return err_set(e, ERR_CONFIG, "the %s name '%.40s…' is longer than %d bytes", kind, name,
                       BROKER_NAME_MAX);
    }
    return 0;
}

/* entries has room for ARGS_MAX and must live as long as the table. */
static int put_args(const struct broker_arg *args, size_t arg_count, amqp_table_entry_t *entries,
                    amqp_table_t *out, const char *what, struct err *e)
{
    if (arg_count > ARGS_MAX) {
        return err_set(e, ERR_BUG, "%s: more than %d arguments", what, ARGS_MAX);
    }
    for (size_t i = 0; i < arg_count; i++) {
        entries[i].key = amqp_cstring_bytes(args[i].name);
        if (args[i].text) {
            entries[i].value.kind = AMQP_FIELD_KIND_UTF8;
            entries[i].value.value.bytes = amqp_cstring_bytes(args[i].text);
        } else if (args[i].present) {
            entries[i].value.kind = AMQP_FIELD_KIND_VOID;
        } else if (args[i].flag) {
            entries[i].value.kind = AMQP_FIELD_KIND_BOOLEAN;
            entries[i].value.value.boolean = 1;
        } else {
            entries[i].value.kind = AMQP_FIELD_KIND_I64;
            entries[i].value.value.i64 = args[i].number;
        }
    }
    *out = (amqp_table_t){.num_entries = (int)arg_count, .entries = entries};
    return 0;
}

int broker_declare_exchange(struct broker *b, const char *name, const char *type, struct err *e)
{
    return broker_declare_exchange_as(b, &(struct broker_exchange){.name = name, .type = type}, e);
}

int broker_declare_exchange_as(struct broker *b, const struct broker_exchange *x, struct err *e)
{
    char what[WHAT_MAX];
    amqp_table_entry_t entries[ARGS_MAX];
    amqp_table_t table = {0};

    snprintf(what, sizeof(what), "declare exchange '%s'", x->name);
    if (check_name("exchange", x->name, e) || put_args(x->args, x->arg_count, entries, &table, what, e) ||
        broker_begin(b, e)) {
        return -1;
    }
    amqp_exchange_declare_t m = {.exchange = amqp_cstring_bytes(x->name),
                                 .type = amqp_cstring_bytes(x->type),
                                 .durable = !x->transient,
                                 .auto_delete = x->auto_delete,
                                 .internal = x->internal,
                                 .arguments = table};
    return request_method(b, AMQP_EXCHANGE_DECLARE_METHOD, &m, what, e);
}

int broker_has_exchange(struct broker *b, const char *name, struct err *e)
{
    char what[WHAT_MAX];
    struct err why = {0};

    if (check_name("exchange", name, e) || broker_begin(b, e)) {
        return -1;
    }
    snprintf(what, sizeof(what), "look up exchange '%s'", name);
    amqp_exchange_declare_t m = {.exchange = amqp_cstring_bytes(name),
                                 .type = amqp_cstring_bytes("direct"),
                                 .passive = 1,
                                 .durable = 1};
    if (request_method(b, AMQP_EXCHANGE_DECLARE_METHOD, &m, what, &why) == 0) {
        return 1;
    }
    return why.kind == ERR_NOT_FOUND ? 0 : err_set(e, why.kind, "%s", why.text);
}

int broker_delete_exchange(struct broker *b, const char *name, struct err *e)
{
    char what[WHAT_MAX];

    if (check_name("exchange", name, e) || broker_begin(b, e)) {
        return -1;
    }
    snprintf(what, sizeof(what), "delete exchange '%s'", name);
    amqp_exchange_delete_t m = {.exchange = amqp_cstring_bytes(name)};
    return request_method(b, AMQP_EXCHANGE_DELETE_METHOD, &m, what, e);
}

int broker_delete_queue(struct broker *b, const char *name, struct err *e)
{
    char what[WHAT_MAX];

    if (check_name("queue", name, e) || broker_begin(b, e)) {
        return -1;
    }
    snprintf(what, sizeof(what), "delete queue '%s'", name);
    amqp_queue_delete_t m = {.queue = amqp_cstring_bytes(name)};
    return request_method(b, AMQP_QUEUE_DELETE_METHOD, &m, what, e);
}

static int declare_queue(struct broker *b, const char *name, bool exclusive, const struct broker_arg *args,
                         size_t arg_count, struct err *e)
{
    char what[WHAT_MAX];
    amqp_table_entry_t entries[ARGS_MAX];
    amqp_table_t table = {0};

    snprintf(what, sizeof(what), "declare queue '%s'", name);
    if (check_name("queue", name, e) || put_args(args, arg_count, entries, &table, what, e) ||
        broker_begin(b, e)) {
        return -1;
    }
    amqp_queue_declare_t m = {.queue = amqp_cstring_bytes(name),
                              .durable = !exclusive,
                              .exclusive = exclusive,
                              .auto_delete = exclusive,
                              .arguments = table};
    return request_method(b, AMQP_QUEUE_DECLARE_METHOD, &m, what, e);
}

int broker_declare_queue(struct broker *b, const char *name, const struct broker_arg *args, size_t arg_count,
                         struct err *e)
{
    return declare_queue(b, name, false, args, arg_count, e);
}

int broker_declare_exclusive_queue(struct broker *b, const char *name, struct err *e)
{
    return broker_declare_exclusive_queue_with(b, name, NULL, 0, e);
}

int broker_declare_exclusive_queue_with(struct broker *b, const char *name, const struct broker_arg *args,
                                        size_t arg_count, struct err *e)
{
    return declare_queue(b, name, true, args, arg_count, e);
}

int broker_count_queue(struct broker *b, const char *queue, uint32_t *ready, struct err *e)
{
    uint32_t consumers;

    return broker_look_at_queue(b, queue, ready, &consumers, e);
}

int broker_look_at_queue(struct broker *b, const char *queue, uint32_t *ready, uint32_t *consumers,
                         struct err *e)
{
    char what[WHAT_MAX];

    if (check_name("queue", queue, e) || broker_begin(b, e)) {
        return -1;
    }
    snprintf(what, sizeof(what), "look up queue '%s'", queue);
    amqp_queue_declare_t m = {.queue = amqp_cstring_bytes(queue), .passive = 1};
    const struct broker_call c = call_of(AMQP_QUEUE_DECLARE_METHOD, &m, AMQP_QUEUE_DECLARE_OK_METHOD, what);
    void *answer;
    if (broker_request(b, &c, &answer, e)) {
        return -1;
    }
    const amqp_queue_declare_ok_t *ok = answer;
    *ready = ok->message_count;
    *consumers = ok->consumer_count;
    return 0;
}

int broker_bind_queue(struct broker *b, const char *queue, const char *exchange, const char *binding_key,
                      struct err *e)
{
    char what[WHAT_MAX];

    if (check_name("queue", queue, e) || check_name("exchange", exchange, e) ||
        check_name("binding key", binding_key, e) || broker_begin(b, e)) {
        return -1;
    }
    snprintf(what, sizeof(what), "bind queue '%.120s' to exchange '%.120s'", queue, exchange);
    amqp_queue_bind_t m = {.queue = amqp_cstring_bytes(queue),
                           .exchange = amqp_cstring_bytes(exchange),
                           .routing_key = amqp_cstring_bytes(binding_key)};
    return request_method(b, AMQP_QUEUE_BIND_METHOD, &m, what, e);
}

int broker_bind_queue_with(struct broker *b, const char *queue, const char *exchange,
                           const struct broker_arg *args, size_t arg_count, struct err *e)
{
    char what[WHAT_MAX];
    amqp_table_entry_t entries[ARGS_MAX];
    amqp_table_t table = {0};

    snprintf(what, sizeof(what), "bind queue '%.120s' to exchange '%.120s'", queue, exchange);
    if (check_name("queue", queue, e) || check_name("exchange", exchange, e) ||
        put_args(args, arg_count, entries, &table, what, e) || broker_begin(b, e)) {
        return -1;
    }
    amqp_queue_bind_t m = {
        .queue = amqp_cstring_bytes(queue), .exchange = amqp_cstring_bytes(exchange), .arguments = table};
    return request_method(b, AMQP_QUEUE_BIND_METHOD, &m, what, e);
}

int broker_unbind_queue_with(struct broker *b, const char *queue, const char *exchange,
                             const struct broker_arg *args, size_t arg_count, struct err *e)
{
    char what[WHAT_MAX];
    amqp_table_entry_t entries[ARGS_MAX];
    amqp_table_t table = {0};

    snprintf(what, sizeof(what), "unbind queue '%.120s' from exchange '%.120s'", queue, exchange);
    if (check_name("queue", queue, e) || check_name("exchange", exchange, e) ||
        put_args(args, arg_count, entries, &table, what, e) || broker_begin(b, e)) {
        return -1;
    }
    amqp_queue_unbind_t m = {
        .queue = amqp_cstring_bytes(queue), .exchange = amqp_cstring_bytes(exchange), .arguments = table};
    return request_method(b, AMQP_QUEUE_UNBIND_METHOD, &m, what, e);
}

int broker_bind_exchange_with(struct broker *b, const char *to, const char *from,
                              const struct broker_arg *args, size_t arg_count, struct err *e)
{
    char what[WHAT_MAX];
    amqp_table_entry_t entries[ARGS_MAX];
    amqp_table_t table = {0};

    snprintf(what, sizeof(what), "bind exchange '%.120s' to exchange '%.120s'", to, from);
    if (check_name("exchange", to, e) || check_name("exchange", from, e) ||
        put_args(args, arg_count, entries, &table, what, e) || broker_begin(b, e)) {
        return -1;
    }
    amqp_exchange_bind_t m = {
        .destination = amqp_cstring_bytes(to), .source = amqp_cstring_bytes(from), .arguments = table};
    return request_method(b, AMQP_EXCHANGE_BIND_METHOD, &m, what, e);
}

/* Prefetch and consumers in one piece: the server is to have read the last of them before it begins to
 * deliver to the first, for that may keep it busy for seconds. Of several none is confirmed: deliveries to
 * the first would come before the answer for the last, and fill the memory while it is waited for. What is
 * wrong with one of them closes the channel, and broker_next_event says so. */
static int send_consumers(struct broker *b, const struct broker_consumer *consumers, size_t count,
                          uint16_t prefetch, bool nowait, struct err *e)
{
    amqp_basic_qos_t qos = {.prefetch_count = prefetch};
    const struct broker_call limit = call_of(AMQP_BASIC_QOS_METHOD, &qos, 0, "set the prefetch");

    if (broker_put_method(b, &limit, e)) {
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        amqp_basic_consume_t m = {.queue = amqp_cstring_bytes(consumers[i].queue),
                                  .consumer_tag = amqp_cstring_bytes(consumers[i].tag),
                                  .nowait = nowait};
        const struct broker_call c = call_of(AMQP_BASIC_CONSUME_METHOD, &m, 0, "consume");
        if (broker_put_method(b, &c, e)) {
            return -1;
        }
    }
    return broker_flush_until(b, "consume", clock_monotonic_ns() + BROKER_CALL_NS, e);
}

static int await_reply(struct broker *b, amqp_method_number_t reply, const char *what, struct err *e)
{
    const struct broker_call c = call_of(0, NULL, reply, what);

    return broker_await(b, &c, clock_monotonic_ns() + BROKER_CALL_NS, NULL, e);
}

static int start_consumer(struct broker *b, const struct broker_consumer *consumers, size_t count,
                          uint16_t prefetch, bool nowait, struct err *e)
{
    for (size_t i = 0; i < count; i++) {
        if (check_name("queue", consumers[i].queue, e) || check_name("consumer tag", consumers[i].tag, e)) {
            return -1;
        }
    }
    if (broker_begin(b, e) || send_consumers(b, consumers, count, prefetch, nowait, e) ||
        await_reply(b, AMQP_BASIC_QOS_OK_METHOD, "set the prefetch", e)) {
        return -1;
    }
    if (nowait) {
        return 0;
    }
    char what[WHAT_MAX];
    snprintf(what, sizeof(what), "consume from queue '%s'", consumers[0].queue);
    return await_reply(b, AMQP_BASIC_CONSUME_OK_METHOD, what, e);
}

int broker_consume_all(struct broker *b, const struct broker_consumer *consumers, size_t count,
                       uint16_t prefetch, struct err *e)
{
    return start_consumer(b, consumers, count, prefetch, count > 1, e);
}

int broker_consume(struct broker *b, const char *queue, const char *consumer_tag, uint16_t prefetch,
                   struct err *e)
{
    const struct broker_consumer one = {queue, consumer_tag};

    return start_consumer(b, &one, 1, prefetch, false, e);
}

int broker_consume_more(struct broker *b, const char *queue, const char *consumer_tag, uint16_t prefetch,
                        struct err *e)
{
    const struct broker_consumer one = {queue, consumer_tag};

    return start_consumer(b, &one, 1, prefetch, true, e);
}

int broker_cancel_consume(struct broker *b, const char *consumer_tag, struct err *e)
{
    char what[WHAT_MAX];

    if (check_name("consumer tag", consumer_tag, e) || broker_begin(b, e)) {
        return -1;
    }
    snprintf(what, sizeof(what), "stop consumer '%s'", consumer_tag);
    amqp_basic_cancel_t m = {.consumer_tag = amqp_cstring_bytes(consumer_tag)};
    return request_method(b, AMQP_BASIC_CANCEL_METHOD, &m, what, e);
}

static int renew_consumer(struct broker *b, const struct broker_consumer *c, uint16_t prefetch, struct err *e)
{
    if (broker_cancel_consume(b, c->tag, e) == 0 && broker_consume(b, c->queue, c->tag, prefetch, e) == 0) {
        return 0;
    }
    return err_wrap(e, "queue '%s'", c->queue);
}

int broker_check_consumers(struct broker *b, const struct broker_consumer *consumers, size_t count,
                           uint16_t prefetch, struct err *e)
{
    int64_t now_ms = clock_monotonic_ms();

    if (b->check_ms == 0) {
        b->check_ms = now_ms + FIRST_CHECK_MS;
    }
    if (now_ms < b->check_ms) {
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        if (renew_consumer(b, &consumers[i], prefetch, e)) {
            return -1;
        }
    }
    b->check_ms = clock_monotonic_ms() + BROKER_QUIET_MS;
    return 0;
}

int broker_confirm_select(struct broker *b, struct err *e)
{
    if (broker_begin(b, e)) {
        return -1;
    }
    amqp_confirm_select_t m = {0};
    if (request_method(b, AMQP_CONFIRM_SELECT_METHOD, &m, "switch on publisher confirms", e)) {
        return -1;
    }
    if (b->next_seq == 0) {
        b->next_seq = 1;
    }
    return 0;
}

int broker_reopen(struct broker *b, struct err *e)
{
    if (!b->can_reopen) {
        return err_set(e, ERR_AWAY, "cannot open a channel anew: RabbitMQ at %s: the connection is gone",
                       b->address);
    }
    b->can_reopen = b->dead = false;
    b->next_seq = 0;
    b->close_code = 0;
    return broker_open_channel(b, "open a channel anew", e);
}

int broker_ack(struct broker *b, uint64_t delivery_tag, bool multiple, struct err *e)
{
    if (broker_begin(b, e)) {
        return -1;
    }
    amqp_basic_ack_t m = {.delivery_tag = delivery_tag, .multiple = multiple};
    const struct broker_call c = call_of(AMQP_BASIC_ACK_METHOD, &m, 0, "acknowledge");
    return broker_send_method(b, &c, e);
}

int broker_reject(struct broker *b, uint64_t delivery_tag, bool requeue, struct err *e)
{
    if (broker_begin(b, e)) {
        return -1;
    }
    amqp_basic_reject_t m = {.delivery_tag = delivery_tag, .requeue = requeue};
    const struct broker_call c = call_of(AMQP_BASIC_REJECT_METHOD, &m, 0, "reject a delivery");
    return broker_send_method(b, &c, e);
}
