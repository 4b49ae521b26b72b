/* Requests that wait for their answer: declaring, binding, consuming, confirm mode; and acknowledgements. */
#include "amqp/connection/broker_internal.h"
#include "core/base/clock.h"
#include <stdarg.h>
#include <stdio.h>

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

/* Of a request's number: its answer's is the next one, but for exchange.unbind. fmt: for errors, "declare
 * queue '%s'". *answer (may be NULL) is valid until the next frame is read. */
__attribute__((format(printf, 6, 7))) static int ask(struct broker *b, amqp_method_number_t number,
                                                     void *decoded, void **answer, struct err *e,
                                                     const char *fmt, ...)
{
    char what[WHAT_MAX];
    amqp_method_number_t reply =
        number == AMQP_EXCHANGE_UNBIND_METHOD ? AMQP_EXCHANGE_UNBIND_OK_METHOD : number + 1;
    const struct broker_call c = call_of(number, decoded, reply, what);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return broker_begin(b, e) ? -1 : broker_request(b, &c, answer, e);
}

struct args {
    amqp_table_entry_t entries[ARGS_MAX];
    amqp_table_t table; /* of them: this must stay where it is */
};

static int put_args(struct args *out, const struct broker_arg *args, struct err *e)
{
    size_t count = 0;
    for (; args && args[count].name; count++) {
        const struct broker_arg *x = &args[count];
        amqp_field_value_t v = {.kind = AMQP_FIELD_KIND_VOID};
        if (count == ARGS_MAX)
            return err_set(e, ERR_BUG, "more than %d arguments", ARGS_MAX);
        if (x->text) {
            v.kind = AMQP_FIELD_KIND_UTF8;
            v.value.bytes = amqp_cstring_bytes(x->text);
        } else if (x->flag) {
            v.kind = AMQP_FIELD_KIND_BOOLEAN;
            v.value.boolean = 1;
        } else if (!x->present) {
            v.kind = AMQP_FIELD_KIND_I64;
            v.value.i64 = x->number;
        }
        out->entries[count] = (amqp_table_entry_t){.key = amqp_cstring_bytes(x->name), .value = v};
    }
    out->table = (amqp_table_t){.num_entries = (int)count, .entries = out->entries};
    return 0;
}

int broker_declare_exchange(struct broker *b, const char *name, const char *type, struct err *e)
{
    return broker_declare_exchange_as(b, &(struct broker_exchange){.name = name, .type = type}, e);
}

int broker_declare_exchange_as(struct broker *b, const struct broker_exchange *x, struct err *e)
{
    struct args a;
    if (put_args(&a, x->args, e))
        return -1;
    amqp_exchange_declare_t m = {.exchange = amqp_cstring_bytes(x->name),
                                 .type = amqp_cstring_bytes(x->type),
                                 .durable = !x->transient,
                                 .auto_delete = x->auto_delete,
                                 .internal = x->internal,
                                 .arguments = a.table};
    return ask(b, AMQP_EXCHANGE_DECLARE_METHOD, &m, NULL, e, "declare exchange '%s'", x->name);
}

int broker_has_exchange(struct broker *b, const char *name, struct err *e)
{
    struct err why = {0};
    amqp_exchange_declare_t m = {.exchange = amqp_cstring_bytes(name),
                                 .type = amqp_cstring_bytes("direct"),
                                 .passive = 1,
                                 .durable = 1};
    if (ask(b, AMQP_EXCHANGE_DECLARE_METHOD, &m, NULL, &why, "look up exchange '%s'", name) == 0)
        return 1;
    bool missing = why.kind == ERR_NOT_FOUND && broker_recover(b, &why) == 0;
    return missing ? 0 : err_set(e, why.kind, "%s", why.text);
}

/* An unknown type is a 503 on the connection before 3.13, and since a 406 on the channel, as is an exchange
 * of that name with other settings: then it is there. */
bool broker_lacks_type(struct broker *b, const struct broker_exchange *x, const char *plugin, struct err *e)
{
    struct err ignored;
    int code = broker_close_code(b);
    if (code != BROKER_INVALID && (code != BROKER_MISFIT || broker_recover(b, &ignored) != 0 ||
                                   broker_has_exchange(b, x->name, &ignored) != 0))
        return false;
    err_set(e, ERR_CONFIG,
            "RabbitMQ does not know the exchange type %s: enable its plugin on each node (rabbitmq-plugins "
            "enable %s)",
            x->type, plugin);
    return true;
}

int broker_delete_exchange(struct broker *b, const char *name, bool if_unused, struct err *e)
{
    amqp_exchange_delete_t m = {.exchange = amqp_cstring_bytes(name), .if_unused = if_unused};
    return ask(b, AMQP_EXCHANGE_DELETE_METHOD, &m, NULL, e, "delete exchange '%s'", name);
}

int broker_delete_queue(struct broker *b, const char *name, struct err *e)
{
    amqp_queue_delete_t m = {.queue = amqp_cstring_bytes(name)};
    return ask(b, AMQP_QUEUE_DELETE_METHOD, &m, NULL, e, "delete queue '%s'", name);
}

static int declare_queue(struct broker *b, const char *name, bool exclusive, const struct broker_arg *args,
                         struct err *e)
{
    struct args a;
    if (put_args(&a, args, e))
        return -1;
    amqp_queue_declare_t m = {.queue = amqp_cstring_bytes(name),
                              .durable = !exclusive,
                              .exclusive = exclusive,
                              .auto_delete = exclusive,
                              .arguments = a.table};
    return ask(b, AMQP_QUEUE_DECLARE_METHOD, &m, NULL, e, "declare queue '%s'", name);
}

int broker_declare_queue(struct broker *b, const char *name, const struct broker_arg *args, struct err *e)
{
    return declare_queue(b, name, false, args, e);
}

int broker_declare_exclusive_queue(struct broker *b, const char *name, const struct broker_arg *args,
                                   struct err *e)
{
    return declare_queue(b, name, true, args, e);
}

int broker_look_at_queue(struct broker *b, const char *queue, uint32_t *ready, uint32_t *consumers,
                         struct err *e)
{
    amqp_queue_declare_t m = {.queue = amqp_cstring_bytes(queue), .passive = 1};
    void *answer;
    if (ask(b, AMQP_QUEUE_DECLARE_METHOD, &m, &answer, e, "look up queue '%s'", queue))
        return -1;
    const amqp_queue_declare_ok_t *ok = answer;
    *ready = ok->message_count;
    if (consumers)
        *consumers = ok->consumer_count;
    return 0;
}

/* Four requests with the same arguments. */
static int tie(struct broker *b, amqp_method_number_t number, const struct broker_binding *x, struct err *e)
{
    struct args a;
    if (put_args(&a, x->args, e))
        return -1;
    const amqp_bytes_t to = amqp_cstring_bytes(x->to), from = amqp_cstring_bytes(x->from),
                       key = amqp_cstring_bytes(x->key ? x->key : "");
    amqp_queue_bind_t bind_queue = {.queue = to, .exchange = from, .routing_key = key, .arguments = a.table};
    amqp_queue_unbind_t unbind_queue = {
        .queue = to, .exchange = from, .routing_key = key, .arguments = a.table};
    amqp_exchange_bind_t bind = {.destination = to, .source = from, .routing_key = key, .arguments = a.table};
    amqp_exchange_unbind_t unbind = {
        .destination = to, .source = from, .routing_key = key, .arguments = a.table};
    bool binds = number == AMQP_QUEUE_BIND_METHOD || number == AMQP_EXCHANGE_BIND_METHOD;
    bool queue = number == AMQP_QUEUE_BIND_METHOD || number == AMQP_QUEUE_UNBIND_METHOD;
    void *decoded = queue ? (binds ? (void *)&bind_queue : &unbind_queue) : (binds ? (void *)&bind : &unbind);
    return ask(b, number, decoded, NULL, e, "%s %s '%.120s' %s exchange '%.120s'", binds ? "bind" : "unbind",
               queue ? "queue" : "exchange", x->to, binds ? "to" : "from", x->from);
}

int broker_bind_queue(struct broker *b, const struct broker_binding *x, struct err *e)
{
    return tie(b, AMQP_QUEUE_BIND_METHOD, x, e);
}

int broker_unbind_queue(struct broker *b, const struct broker_binding *x, struct err *e)
{
    return tie(b, AMQP_QUEUE_UNBIND_METHOD, x, e);
}

int broker_bind_exchange(struct broker *b, const struct broker_binding *x, struct err *e)
{
    return tie(b, AMQP_EXCHANGE_BIND_METHOD, x, e);
}

int broker_unbind_exchange(struct broker *b, const struct broker_binding *x, struct err *e)
{
    return tie(b, AMQP_EXCHANGE_UNBIND_METHOD, x, e);
}

/* Sends prefetch and consumers in one piece, so that the server has read the last of them before it delivers
 * to the first, which may take seconds. With several consumers no answers are requested: deliveries to the
 * first would arrive before the answer for the last, and fill the memory meanwhile. An error in one of them
 * closes the channel, which broker_next_event reports. */
static int send_consumers(struct broker *b, const struct broker_consumer *consumers, size_t count,
                          uint16_t prefetch, bool nowait, struct err *e)
{
    amqp_basic_qos_t qos = {.prefetch_count = prefetch};
    const struct broker_call limit = call_of(AMQP_BASIC_QOS_METHOD, &qos, 0, "set the prefetch");
    if (broker_put_method(b, &limit, e))
        return -1;
    for (size_t i = 0; i < count; i++) {
        amqp_basic_consume_t m = {.queue = amqp_cstring_bytes(consumers[i].queue),
                                  .consumer_tag = amqp_cstring_bytes(consumers[i].tag),
                                  .nowait = nowait};
        const struct broker_call c = call_of(AMQP_BASIC_CONSUME_METHOD, &m, 0, "consume");
        if (broker_put_method(b, &c, e))
            return -1;
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
    if (broker_begin(b, e) || send_consumers(b, consumers, count, prefetch, nowait, e) ||
        await_reply(b, AMQP_BASIC_QOS_OK_METHOD, "set the prefetch", e))
        return -1;
    if (nowait)
        return 0;
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
    amqp_basic_cancel_t m = {.consumer_tag = amqp_cstring_bytes(consumer_tag)};
    return ask(b, AMQP_BASIC_CANCEL_METHOD, &m, NULL, e, "stop consumer '%s'", consumer_tag);
}

static int renew_consumer(struct broker *b, const struct broker_consumer *c, uint16_t prefetch, struct err *e)
{
    if (broker_cancel_consume(b, c->tag, e) == 0 && broker_consume(b, c->queue, c->tag, prefetch, e) == 0)
        return 0;
    return err_wrap(e, "queue '%s'", c->queue);
}

int broker_check_consumers(struct broker *b, const struct broker_consumer *consumers, size_t count,
                           uint16_t prefetch, struct err *e)
{
    int64_t now_ms = clock_monotonic_ms();
    if (b->check_ms == 0)
        b->check_ms = now_ms + FIRST_CHECK_MS;
    if (now_ms < b->check_ms)
        return 0;
    for (size_t i = 0; i < count; i++)
        if (renew_consumer(b, &consumers[i], prefetch, e))
            return -1;
    b->check_ms = clock_monotonic_ms() + BROKER_QUIET_MS;
    return 0;
}

int broker_confirm_select(struct broker *b, struct err *e)
{
    amqp_confirm_select_t m = {0};
    if (ask(b, AMQP_CONFIRM_SELECT_METHOD, &m, NULL, e, "enable publisher confirms"))
        return -1;
    if (b->next_seq == 0)
        b->next_seq = 1;
    return 0;
}

int broker_recover(struct broker *b, struct err *e)
{
    if (!b->dead)
        return 0;
    if (!b->can_reopen)
        return err_set(e, ERR_AWAY, "cannot reopen a channel: RabbitMQ at %s: the connection is lost",
                       b->address);
    b->can_reopen = b->dead = false;
    b->next_seq = 0;
    b->close_code = 0;
    return broker_open_channel(b, "reopen a channel", e);
}

static int tell(struct broker *b, amqp_method_number_t number, void *decoded, const char *what, struct err *e)
{
    const struct broker_call c = call_of(number, decoded, 0, what);
    return broker_begin(b, e) ? -1 : broker_send_method(b, &c, e);
}

int broker_ack(struct broker *b, uint64_t delivery_tag, bool multiple, struct err *e)
{
    amqp_basic_ack_t m = {.delivery_tag = delivery_tag, .multiple = multiple};
    const struct broker_call c = call_of(AMQP_BASIC_ACK_METHOD, &m, 0, "acknowledge");
    if (b->dead)
        return broker_begin(b, e);
    if (broker_put_method(b, &c, e))
        return -1;
    return b->out.len >= BROKER_GATHERED_BYTES ? broker_send(b, e) : 0;
}

int broker_reject(struct broker *b, uint64_t delivery_tag, bool requeue, struct err *e)
{
    amqp_basic_reject_t m = {.delivery_tag = delivery_tag, .requeue = requeue};
    return tell(b, AMQP_BASIC_REJECT_METHOD, &m, "reject a delivery", e);
}

int broker_ping(struct broker *b, struct err *e)
{
    amqp_basic_qos_t m = {0}; /* for consumers, which this channel has none of */
    return tell(b, AMQP_BASIC_QOS_METHOD, &m, "ping", e);
}
