/* The server closes a channel or the connection: why, and what the caller should do about it. Its code
 * decides; its text, which changes with its release, is only shown. */
#include "amqp/connection/broker_internal.h"

#include <string.h>

/* https://github.com/rabbitmq/rabbitmq-server/pull/14209 */
#define INTERNAL_ERROR_HINT                                                                                  \
    " (an error inside RabbitMQ, its log says which; before 4.2 also for a message sent by AMQP 1.0 with a " \
    "value for which AMQP 0-9-1 has no type)"

/* 530 stands for a vhost that is not there, one that the user may not enter, and a limit on connections
 * alike. Each of them passes when somebody corrects it. */
static enum err_kind login_kind(int code)
{
    return code == AMQP_ACCESS_REFUSED ? ERR_PERMISSION
           : code == AMQP_INVALID_PATH ? ERR_CONFIG
           : code == AMQP_NOT_ALLOWED  ? ERR_BUSY
                                       : ERR_AWAY;
}

static enum err_kind declare_kind(int code)
{
    switch (code) {
    case AMQP_ACCESS_REFUSED:
        return ERR_PERMISSION;
    case AMQP_NOT_FOUND:
        return ERR_NOT_FOUND;
    case AMQP_RESOURCE_LOCKED:
    case AMQP_PRECONDITION_FAILED:
    case AMQP_COMMAND_INVALID: /* an exchange type that the server does not know (before 3.13) */
    case AMQP_NOT_ALLOWED:
    case AMQP_NOT_IMPLEMENTED:
        return ERR_CONFIG;
    default:
        return ERR_AWAY;
    }
}

static bool is_declare(uint32_t cause)
{
    return cause == AMQP_QUEUE_DECLARE_METHOD || cause == AMQP_EXCHANGE_DECLARE_METHOD;
}

/* Which publish it was, if it was one, the publisher finds out: broker_close_code. */
static enum err_kind stream_kind(uint32_t cause, int code, const char *reason)
{
    if (cause != AMQP_BASIC_PUBLISH_METHOD)
        return ERR_AWAY;
    switch (code) {
    case AMQP_NOT_FOUND:
        return ERR_NOT_FOUND;
    case AMQP_ACCESS_REFUSED: /* with topic permissions, of one routing key alone */
        return strstr(reason, "access to topic") ? ERR_REJECT : ERR_PERMISSION;
    case AMQP_RESOURCE_ERROR: /* these say nothing for certain about what became of it */
    case AMQP_INTERNAL_ERROR:
        return ERR_AWAY;
    default:
        return ERR_REJECT;
    }
}

/* Answers without ever blocking: a peer that doesn't read won't miss it. True if it was answered. */
static bool answer_close(struct broker *b, bool channel)
{
    const uint32_t id = channel ? AMQP_CHANNEL_CLOSE_OK_METHOD : AMQP_CONNECTION_CLOSE_OK_METHOD;
    const uint8_t frame[] = {AMQP_FRAME_METHOD,
                             0,
                             channel ? BROKER_CHANNEL : 0,
                             0,
                             0,
                             0,
                             4,
                             (uint8_t)(id >> 24),
                             (uint8_t)(id >> 16),
                             (uint8_t)(id >> 8),
                             (uint8_t)id,
                             AMQP_FRAME_END};
    return broker_transmit_now(b, bytes_of(frame, sizeof(frame)));
}

int broker_closed(struct broker *b, const amqp_method_t *method, enum broker_phase phase, const char *what,
                  struct err *e)
{
    bool channel = method->id == AMQP_CHANNEL_CLOSE_METHOD;
    int code;
    uint32_t cause;
    struct bytes text;
    char reason[300];
    if (channel) {
        const amqp_channel_close_t *m = method->decoded;
        code = m->reply_code;
        text = broker_bytes(m->reply_text);
        cause = (uint32_t)m->class_id << 16 | m->method_id;
    } else {
        const amqp_connection_close_t *m = method->decoded;
        code = m->reply_code;
        text = broker_bytes(m->reply_text);
        cause = (uint32_t)m->class_id << 16 | m->method_id;
    }
    bytes_printable(text, reason, sizeof(reason));
    enum err_kind kind = code == AMQP_CONNECTION_FORCED ? ERR_AWAY
                         : phase == BROKER_LOGIN        ? login_kind(code)
                         : phase == BROKER_DECLARE      ? declare_kind(code)
                                                        : stream_kind(cause, code, reason);
    bool answered = answer_close(b, channel);
    broker_fail_mark_dead(b);
    b->gone = !channel;
    b->close_code = code;
    b->can_reopen = channel && answered;
    if (code == AMQP_PRECONDITION_FAILED && is_declare(cause))
        return err_set(
            e, kind,
            "cannot %s: it exists with other settings in RabbitMQ at %s (delete or rename it there, or "
            "configure another name): %s",
            what, b->address, reason);
    return err_set(e, kind, "cannot %s: RabbitMQ at %s closed the %s: %d %s%s", what, b->address,
                   channel ? "channel" : "connection", code, reason,
                   code == AMQP_INTERNAL_ERROR ? INTERNAL_ERROR_HINT : "");
}
