/* One connection to RabbitMQ with one channel, for one thread.
 *
 * Everything that <amqp.h> (rabbitmq-c) offers is reached through this module; no other room includes it.
 * A connection is owned by the thread that opened it; only broker_shutdown may be called from another thread.
 * After any function returned -1 the connection is dead: close it and open a new one (with back-off), except
 * where a function says otherwise. */
#ifndef POSTDATE_AMQP_CONNECTION_BROKER_H
#define POSTDATE_AMQP_CONNECTION_BROKER_H

#include "core/base/arena.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct broker; /* opaque */
struct buf;
struct broker_hosts;

struct broker_options {
    const char *url; /* amqp://user:password@host:port,host:port/vhost or amqps://… ; the vhost is
                        percent-decoded, absent path means "/" */
    struct broker_hosts *hosts; /* remembers which hosts fail; NULL: not remembered */
    int only_host;    /* 1…: only that host of the URL; 0: the first that accepts the connection */
    const char *name; /* shown as connection_name in the management UI, e.g. "postdate publisher" */
    int heartbeat_s;  /* 0..3600; 0 disables */
    int connect_timeout_ms;
    const char *ca_file, *cert_file,
        *key_file; /* amqps only; NULL: system CA store / no client certificate */
};

/* Checks an URL without connecting; the error text never contains the password; it follows the option's name.
 * ERR_CONFIG. */
int broker_url_check(const char *url, struct err *e);
/* The number of hosts in a URL; 0: the URL is invalid. */
int broker_url_hosts(const char *url);
/* The decoded vhost of an URL into out. ERR_CONFIG. */
int broker_url_vhost(const char *url, char *out, size_t out_size, struct err *e);

/* Connects, logs in (announcing consumer_cancel_notify, connection.blocked, basic.nack, publisher_confirms
 * and connection_name), opens channel 1. Blocks at most about connect_timeout_ms per step; of several hosts
 * the next is tried, the first ones with a share of that time, and the last with all of it. ERR_AWAY: not
 * reachable or lost; ERR_PERMISSION: login or access to the vhost refused; ERR_CONFIG: URL, vhost does not
 * exist, TLS files. */
struct broker *broker_open(const struct broker_options *o, struct err *e);
/* Polite close (at most about a second), then frees. NULL is fine. */
void broker_close(struct broker *b);
/* Frees without closing at the server: for connections known to be dead or hung. NULL is fine. */
void broker_drop(struct broker *b);
/* The same, and discards unsent data (RST instead of FIN). For a publisher that republishes its unconfirmed
 * messages on another connection: else, once the network is back, both copies would arrive. */
void broker_abort(struct broker *b);
void broker_end(struct broker *b, bool politely); /* broker_close, or broker_drop */

/* shutdown(2)s the socket, so that a thread blocked in a call on b returns with an error. From any thread
 * while b is open. */
void broker_shutdown(struct broker *b);
/* True once a call has failed in a way that ended the connection. */
bool broker_is_dead(const struct broker *b);
/* The code with which RabbitMQ closed the channel or the connection; 0: no close was received. Kept until
 * broker_recover. */
int broker_close_code(const struct broker *b);
#define BROKER_FORCED 320   /* an operator closed the connection, or RabbitMQ is shutting down */
#define BROKER_MISFIT 406   /* it exists with other settings; since 3.13 also: unknown exchange type */
#define BROKER_INVALID 503  /* such as an unknown exchange type */
#define BROKER_LOCKED 405   /* an exclusive queue of another connection */
#define BROKER_NO_RIGHT 403 /* no permission to write to the exchange, or with this routing key */
/* RabbitMQ closed the channel or connection over an internal error, not because of a request. */
bool broker_failed_inside(const struct broker *b);
int broker_fd(const struct broker *b);              /* for poll(2) */
const char *broker_address(const struct broker *b); /* "host:port" */
/* True when events can be read without waiting for the socket: ask before poll(2). */
bool broker_has_pending(struct broker *b);
/* True if frames are buffered or partly sent: later frames wait until the server reads. */
bool broker_has_unsent(const struct broker *b);
/* True if received data, or the end of the connection, has not been read yet. BROKER_EVENT_NONE does not
 * imply false: it is also returned after heartbeats. */
bool broker_has_unread(struct broker *b);

/* From the server's properties; "" if missing. Valid until close. */
const char *broker_cluster_name(const struct broker *b);
const char *broker_version(const struct broker *b);
int broker_version_number(const struct broker *b); /* 403 for "4.3.6"; 0 if missing */
int broker_heartbeat_s(const struct broker *b);    /* as negotiated; 0: none */

/* --- declaring: synchronous, idempotent. ERR_CONFIG: exists with other settings (names it; the connection is
 * dead then); ERR_PERMISSION: refused; ERR_NOT_FOUND: bind to a missing thing; ERR_AWAY. */
struct broker_arg {
    const char *name; /* NULL behind the last; a list of none may be NULL */
    const char *text; /* string value, or NULL for … */
    int64_t number;   /* … this integer … */
    bool flag;        /* … or, if set, true … */
    bool present; /* … or, if set, no value: a headers exchange asks only whether there is such a header */
};
/* A list of them: BROKER_ARGS(BROKER_TEXT("x-queue-type", "quorum"), BROKER_NUMBER("x-max-length", 1)). */
/* clang-format off */
#define BROKER_ARGS(...) (const struct broker_arg[]){__VA_ARGS__, BROKER_NO_ARG}
#define BROKER_TEXT(n, t) {.name = (n), .text = (t)}
#define BROKER_NUMBER(n, v) {.name = (n), .number = (v)}
#define BROKER_PRESENT(n) {.name = (n), .present = true}
#define BROKER_NO_ARG {.name = NULL}
/* clang-format on */
int broker_declare_exchange(struct broker *b, const char *name, const char *type,
                            struct err *e); /* durable */
int broker_declare_queue(struct broker *b, const char *name, const struct broker_arg *args,
                         struct err *e); /* durable, not exclusive */
/* Not durable, exclusive; deleted with its last consumer, or with the connection. */
int broker_declare_exclusive_queue(struct broker *b, const char *name, const struct broker_arg *args,
                                   struct err *e);
struct broker_exchange {
    const char *name, *type;
    bool transient;                /* neither it nor its bindings survive a restart of RabbitMQ */
    bool internal;                 /* clients cannot publish to it */
    bool auto_delete;              /* deleted with the last of its bindings, if it had one */
    const struct broker_arg *args; /* such as x-delayed-type, alternate-exchange */
};
int broker_declare_exchange_as(struct broker *b, const struct broker_exchange *x, struct err *e);
/* After broker_declare_exchange_as failed with ERR_CONFIG. True: RabbitMQ does not know the type, and e
 * (ERR_CONFIG) names the plugin. False: the exchange exists with other settings, and e is unchanged.
 * Afterwards the connection is dead, or was reopened. */
bool broker_lacks_type(struct broker *b, const struct broker_exchange *x, const char *plugin, struct err *e);
struct broker_binding {
    const char *to;                /* the queue, or the exchange */
    const char *from, *key;        /* exchange; binding key, NULL: "" */
    const struct broker_arg *args; /* such as x-match */
};
int broker_bind_queue(struct broker *b, const struct broker_binding *x, struct err *e);
int broker_unbind_queue(struct broker *b, const struct broker_binding *x, struct err *e); /* missing: fine */
int broker_bind_exchange(struct broker *b, const struct broker_binding *x, struct err *e);
/* A missing binding or exchange is fine. */
int broker_unbind_exchange(struct broker *b, const struct broker_binding *x, struct err *e);
/* 1: an exchange of that name exists, of any type; 0: it does not. */
int broker_has_exchange(struct broker *b, const char *name, struct err *e);
/* Missing: fine. if_unused: only where nothing is bound to it; else ERR_CONFIG, and the channel is closed. */
int broker_delete_exchange(struct broker *b, const char *name, bool if_unused, struct err *e);
int broker_delete_queue(struct broker *b, const char *name, struct err *e); /* missing: fine */
/* Messages that are ready in a queue, and its consumers (may be NULL). A quorum queue that does not answer
 * shows 0 for both. ERR_NOT_FOUND: no such queue (the connection is dead then). */
int broker_look_at_queue(struct broker *b, const char *queue, uint32_t *ready, uint32_t *consumers,
                         struct err *e);

/* --- consuming */
int broker_consume(struct broker *b, const char *queue, const char *consumer_tag, uint16_t prefetch,
                   struct err *e);
/* Several at once (1 or more), with that prefetch each. If there are several, a refusal is reported by the
 * next broker_next_event. */
struct broker_consumer {
    const char *queue, *tag;
};
int broker_consume_all(struct broker *b, const struct broker_consumer *consumers, size_t count,
                       uint16_t prefetch, struct err *e);
/* A further consumer of the same queue; a refusal is reported by the next broker_next_event. Deliveries
 * continue meanwhile. */
int broker_consume_more(struct broker *b, const char *queue, const char *consumer_tag, uint16_t prefetch,
                        struct err *e);
int broker_cancel_consume(struct broker *b, const char *consumer_tag, struct err *e);
/* Call it while nothing is delivered. After half a minute without a delivery (the first time: a second) it
 * restarts these consumers, because a queue that has lost its majority or its consumers looks like an empty
 * queue to a client. -1: a queue does not answer; the text names it. */
int broker_check_consumers(struct broker *b, const struct broker_consumer *consumers, size_t count,
                           uint16_t prefetch, struct err *e);
/* Buffered, as publishes are (broker_flush). multiple: including all earlier tags. */
int broker_ack(struct broker *b, uint64_t delivery_tag, bool multiple, struct err *e);
int broker_reject(struct broker *b, uint64_t delivery_tag, bool requeue, struct err *e);

/* After a call that failed because the server closed the channel (such as a publish to a missing exchange):
 * reopens the channel, which costs two round trips instead of a login. Else does nothing. Publishes in flight
 * stay unconfirmed, consumers are lost, confirms must be enabled again. -1: the connection is dead. */
int broker_recover(struct broker *b, struct err *e);

/* --- publishing */
int broker_confirm_select(struct broker *b, struct err *e);
/* Publishes and acknowledgements are buffered and sent with few system calls: 32 KiB at a time, and at the
 * latest by the next call of another function on b (also broker_has_pending, broker_next_event). Call
 * broker_flush if no such call follows soon. */
int broker_flush(struct broker *b, struct err *e);

/* Requests a BROKER_EVENT_PONG without waiting for it. The channel answers after all earlier frames, unless
 * it is blocked: a quorum queue without a leader blocks the whole channel, at the channel's first publish to
 * it or once 32 publishes are unconfirmed (credit flow). */
int broker_ping(struct broker *b, struct err *e);

struct broker_message {
    struct bytes exchange, routing_key;
    struct bytes properties; /* raw AMQP bytes (core/message/wire.h) */
    struct bytes body;
    bool mandatory;
};
/* Publishes. Properties are checked before the first byte is sent; if they cannot be encoded: -1 with
 * ERR_REJECT, and the connection stays usable. Blocks for up to 20 s while RabbitMQ does not read; then the
 * connection is dead. *seq (may be NULL) receives the delivery tag its confirm will carry (counted from 1
 * after broker_confirm_select). */
int broker_publish(struct broker *b, const struct broker_message *m, uint64_t *seq, struct err *e);

/* Publishes to a queue through the default exchange; BROKER_EVENT_RETURN if the queue is missing. Frees the
 * properties. */
int broker_publish_to_queue(struct broker *b, const char *queue, struct buf *properties, struct bytes body,
                            uint64_t *seq, struct err *e);

/* --- events */
enum broker_event_kind {
    BROKER_EVENT_NONE, /* no event within the time */
    BROKER_EVENT_DELIVERY,
    BROKER_EVENT_ACK, /* publisher confirm */
    BROKER_EVENT_NACK,
    BROKER_EVENT_RETURN,    /* an unroutable mandatory message was returned; its ACK follows */
    BROKER_EVENT_CANCELLED, /* the server ended a consumer (its queue was deleted or failed over) */
    BROKER_EVENT_BLOCKED,   /* RabbitMQ blocks publishers (memory or disk alarm) */
    BROKER_EVENT_UNBLOCKED,
    BROKER_EVENT_PONG, /* to a broker_ping */
};

struct broker_event {
    enum broker_event_kind kind;
    uint64_t tag;      /* DELIVERY: delivery tag. ACK, NACK: confirm tag */
    bool multiple;     /* ACK, NACK: all up to and including tag */
    bool redelivered;  /* DELIVERY */
    int code;          /* RETURN: reply code, e.g. 312 */
    struct bytes text; /* RETURN: reply text; BLOCKED: reason; CANCELLED, DELIVERY: consumer tag */
    struct bytes exchange, routing_key, properties, body; /* DELIVERY, RETURN; copied into the arena */
};

/* Reads the next event, waiting at most timeout_ms (0: only an event that was received already). Sends and
 * checks heartbeats meanwhile: call it at least twice per heartbeat interval. All bytes of the event are
 * copied into the arena. A body that does not fit into max_body or the arena is skipped over and
 * event->body.data is NULL with body.len the full size (so the caller can reject it). 0: event filled (maybe
 * NONE). -1: the connection or channel is closed; the text has the server's reason. If the server closed it
 * because of a publish, which it certainly did not accept: ERR_NOT_FOUND (404 no such exchange),
 * ERR_PERMISSION (403), ERR_REJECT (406 and the like); everything else ERR_AWAY. */
int broker_next_event(struct broker *b, struct arena *arena, size_t max_body, int timeout_ms,
                      struct broker_event *event, struct err *e);
/* Waits for an event of these kinds (1 << kind, or'ed), read without its body; other events are discarded. 1:
 * event filled; 0: none within timeout_ms; -1: error. Resets the arena. */
int broker_await_event(struct broker *b, unsigned kinds, int timeout_ms, struct arena *arena,
                       struct broker_event *event, struct err *e);

#endif
