/* Requests that wait for their answer: declaring, binding, consuming, confirm mode; and acknowledgements. */
#include "amqp/broker_internal.h"
#include <stdio.h>
#include <string.h>

#define ARGS_MAX 16
#define WHAT_MAX 320

static int check_reply(struct broker *b, const char *what, struct err *e)
{
    amqp_rpc_reply_t reply = amqp_get_rpc_reply(b->conn);

    if (reply.reply_type != AMQP_RESPONSE_NORMAL) {
        return broker_fail_reply(b, reply, BROKER_DECLARE, what, e);
    }
    amqp_maybe_release_buffers(b->conn);
    return 0;
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
    return broker_declare_exchange_with(b, name, type, NULL, 0, e);
}

static int declare_exchange(struct broker *b, const char *name, const char *type, bool durable,
                            bool auto_delete, const struct broker_arg *args, size_t arg_count, struct err *e)
{
    char what[WHAT_MAX];
    amqp_table_entry_t entries[ARGS_MAX];
    amqp_table_t table = {0};

    snprintf(what, sizeof(what), "declare exchange '%s'", name);
    if (check_name("exchange", name, e) || put_args(args, arg_count, entries, &table, what, e) ||
        broker_begin(b, e)) {
        return -1;
    }
    amqp_exchange_declare(b->conn, BROKER_CHANNEL, amqp_cstring_bytes(name), amqp_cstring_bytes(type), 0,
                          durable, auto_delete, 0, table);
    return check_reply(b, what, e);
}

int broker_declare_exchange_with(struct broker *b, const char *name, const char *type,
                                 const struct broker_arg *args, size_t arg_count, struct err *e)
{
    return declare_exchange(b, name, type, true, false, args, arg_count, e);
}

int broker_declare_transient_exchange(struct broker *b, const char *name, const char *type, bool auto_delete,
                                      const struct broker_arg *args, size_t arg_count, struct err *e)
{
    return declare_exchange(b, name, type, false, auto_delete, args, arg_count, e);
}

int broker_has_exchange(struct broker *b, const char *name, struct err *e)
{
    char what[WHAT_MAX];
    struct err why = {0};

    if (check_name("exchange", name, e) || broker_begin(b, e)) {
        return -1;
    }
    snprintf(what, sizeof(what), "look up exchange '%s'", name);
    amqp_exchange_declare(b->conn, BROKER_CHANNEL, amqp_cstring_bytes(name), amqp_cstring_bytes("direct"), 1,
                          1, 0, 0, amqp_empty_table);
    if (check_reply(b, what, &why) == 0) {
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
    amqp_exchange_delete(b->conn, BROKER_CHANNEL, amqp_cstring_bytes(name), 0);
    return check_reply(b, what, e);
}

int broker_delete_queue(struct broker *b, const char *name, struct err *e)
{
    char what[WHAT_MAX];

    if (check_name("queue", name, e) || broker_begin(b, e)) {
        return -1;
    }
    snprintf(what, sizeof(what), "delete queue '%s'", name);
    amqp_queue_delete(b->conn, BROKER_CHANNEL, amqp_cstring_bytes(name), 0, 0);
    return check_reply(b, what, e);
}

int broker_declare_queue(struct broker *b, const char *name, const struct broker_arg *args, size_t arg_count,
                         struct err *e)
{
    char what[WHAT_MAX];
    amqp_table_entry_t entries[ARGS_MAX];
    amqp_table_t table = {0};

    snprintf(what, sizeof(what), "declare queue '%s'", name);
    if (check_name("queue", name, e) || put_args(args, arg_count, entries, &table, what, e) ||
        broker_begin(b, e)) {
        return -1;
    }
    amqp_queue_declare(b->conn, BROKER_CHANNEL, amqp_cstring_bytes(name), 0, 1, 0, 0, table);
    return check_reply(b, what, e);
}

int broker_declare_exclusive_queue(struct broker *b, const char *name, struct err *e)
{
    char what[WHAT_MAX];

    if (check_name("queue", name, e) || broker_begin(b, e)) {
        return -1;
    }
    snprintf(what, sizeof(what), "declare queue '%s'", name);
    amqp_queue_declare(b->conn, BROKER_CHANNEL, amqp_cstring_bytes(name), 0, 0, 1, 1, amqp_empty_table);
    return check_reply(b, what, e);
}

int broker_count_queue(struct broker *b, const char *queue, uint32_t *ready, struct err *e)
{
    char what[WHAT_MAX];

    if (check_name("queue", queue, e) || broker_begin(b, e)) {
        return -1;
    }
    snprintf(what, sizeof(what), "look up queue '%s'", queue);
    amqp_queue_declare_ok_t *ok =
        amqp_queue_declare(b->conn, BROKER_CHANNEL, amqp_cstring_bytes(queue), 1, 0, 0, 0, amqp_empty_table);
    *ready = ok ? ok->message_count : 0; /* check_reply frees it */
    return check_reply(b, what, e);
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
    amqp_queue_bind(b->conn, BROKER_CHANNEL, amqp_cstring_bytes(queue), amqp_cstring_bytes(exchange),
                    amqp_cstring_bytes(binding_key), amqp_empty_table);
    return check_reply(b, what, e);
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
    amqp_queue_bind(b->conn, BROKER_CHANNEL, amqp_cstring_bytes(queue), amqp_cstring_bytes(exchange),
                    amqp_empty_bytes, table);
    return check_reply(b, what, e);
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
    amqp_exchange_bind(b->conn, BROKER_CHANNEL, amqp_cstring_bytes(to), amqp_cstring_bytes(from),
                       amqp_empty_bytes, table);
    return check_reply(b, what, e);
}

int broker_consume(struct broker *b, const char *queue, const char *consumer_tag, uint16_t prefetch,
                   struct err *e)
{
    char what[WHAT_MAX];

    if (check_name("queue", queue, e) || check_name("consumer tag", consumer_tag, e) || broker_begin(b, e)) {
        return -1;
    }
    snprintf(what, sizeof(what), "consume from queue '%s'", queue);
    amqp_basic_qos(b->conn, BROKER_CHANNEL, 0, prefetch, 0);
    if (check_reply(b, what, e)) {
        return -1;
    }
    amqp_basic_consume(b->conn, BROKER_CHANNEL, amqp_cstring_bytes(queue), amqp_cstring_bytes(consumer_tag),
                       0, 0, 0, amqp_empty_table);
    return check_reply(b, what, e);
}

int broker_cancel_consume(struct broker *b, const char *consumer_tag, struct err *e)
{
    char what[WHAT_MAX];

    if (check_name("consumer tag", consumer_tag, e) || broker_begin(b, e)) {
        return -1;
    }
    snprintf(what, sizeof(what), "stop consumer '%s'", consumer_tag);
    amqp_basic_cancel(b->conn, BROKER_CHANNEL, amqp_cstring_bytes(consumer_tag));
    return check_reply(b, what, e);
}

int broker_confirm_select(struct broker *b, struct err *e)
{
    if (broker_begin(b, e)) {
        return -1;
    }
    amqp_confirm_select(b->conn, BROKER_CHANNEL);
    if (check_reply(b, "switch on publisher confirms", e)) {
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
    amqp_maybe_release_buffers(b->conn);
    b->can_reopen = b->dead = false;
    b->next_seq = 0;
    amqp_channel_open(b->conn, BROKER_CHANNEL);
    return check_reply(b, "open a channel anew", e);
}

int broker_ack(struct broker *b, uint64_t delivery_tag, bool multiple, struct err *e)
{
    if (broker_begin(b, e)) {
        return -1;
    }
    int status = amqp_basic_ack(b->conn, BROKER_CHANNEL, delivery_tag, multiple);
    return status < 0 ? broker_fail_send(b, status, "acknowledge", e) : 0;
}

int broker_reject(struct broker *b, uint64_t delivery_tag, bool requeue, struct err *e)
{
    if (broker_begin(b, e)) {
        return -1;
    }
    int status = amqp_basic_reject(b->conn, BROKER_CHANNEL, delivery_tag, requeue);
    return status < 0 ? broker_fail_send(b, status, "reject a delivery", e) : 0;
}
