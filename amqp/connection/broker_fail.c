/* From what the library or the server says to an error that says what the caller should do, in one line. */
#include "amqp/connection/broker_internal.h"
#include <stdio.h>

void broker_fail_mark_dead(struct broker *b)
{
    b->dead = true;
    b->gone = true;
    b->can_reopen = false;
    buf_reset(&b->out);
}

static enum err_kind status_kind(int status)
{
    switch (status) {
    case AMQP_STATUS_NO_MEMORY:
    case AMQP_STATUS_INVALID_PARAMETER:
    case AMQP_STATUS_TABLE_TOO_BIG:
        return ERR_BUG;
    case AMQP_STATUS_INCOMPATIBLE_AMQP_VERSION:
    case AMQP_STATUS_BROKER_UNSUPPORTED_SASL_METHOD:
        return ERR_CONFIG;
    default: /* a refused certificate, too: it can be renewed while we wait */
        return ERR_AWAY;
    }
}

static const char *status_text(int status)
{
    switch (status) {
    case AMQP_STATUS_HOSTNAME_RESOLUTION_FAILED:
        return "the host name cannot be resolved";
    case AMQP_STATUS_TIMEOUT:
        return "no answer in time";
    case AMQP_STATUS_HEARTBEAT_TIMEOUT:
        return "nothing heard for two heartbeats";
    case AMQP_STATUS_SOCKET_ERROR:
    case AMQP_STATUS_SOCKET_CLOSED:
    case AMQP_STATUS_CONNECTION_CLOSED:
        return "the connection is gone";
    case AMQP_STATUS_BAD_AMQP_DATA:
    case AMQP_STATUS_UNKNOWN_CLASS:
    case AMQP_STATUS_UNKNOWN_METHOD:
        return "what came back is not AMQP 0-9-1 (for a TLS port write amqps://)";
    case AMQP_STATUS_SSL_PEER_VERIFY_FAILED:
        return "its certificate is refused";
    case AMQP_STATUS_SSL_CONNECTION_FAILED:
        return "the TLS handshake failed";
    default:
        return amqp_error_string2(status);
    }
}

int broker_fail_status(struct broker *b, int status, const char *what, struct err *e)
{
    const char *tls = broker_tls_reason(b, status);
    broker_fail_mark_dead(b);
    return err_set(e, status_kind(status), "cannot %s: RabbitMQ at %s: %s", what, b->address,
                   tls ? tls : status_text(status));
}
