/* A message as Postdate stores it. All bytes are views; the function that fills the struct documents their
 * owner. */
#ifndef POSTDATE_CORE_MESSAGE_MESSAGE_H
#define POSTDATE_CORE_MESSAGE_MESSAGE_H

#include "core/base/bytes.h"
#include "core/message/message_id.h"
#include <stdbool.h>
#include <stdint.h>

#define MESSAGE_NAME_MAX 255 /* exchange, routing key, key: AMQP short strings, in bytes */

enum message_state {
    MESSAGE_SCHEDULED,
    MESSAGE_CLAIMED,
    MESSAGE_HANDED,
    MESSAGE_DELIVERED,
    MESSAGE_CANCELLED,
    MESSAGE_SUPERSEDED,
    MESSAGE_FAILED,
    MESSAGE_EXPIRED, /* its deadline passed before it was published */
    MESSAGE_STATE_COUNT,
    MESSAGE_STATE_OTHER = MESSAGE_STATE_COUNT, /* of a later version, which shares the database */
};

enum message_hold {
    HOLD_GATEWAY, /* it can be cancelled until it is due, or RabbitMQ must not hold it */
    HOLD_BROKER,  /* may be handed over to RabbitMQ when it enters the window */
};

enum on_conflict {
    ON_CONFLICT_KEEP,
    ON_CONFLICT_REPLACE,
    ON_CONFLICT_REJECT,
};

struct message {
    struct message_id id;
    int64_t due_ms;          /* ms since 1970 */
    int64_t counted_from_ms; /* the "now" from which a delay gave due_ms: store_accept computes due_ms again
                                from the transaction's clock; 0: due_ms is absolute */
    /* not published after it; 0: none. Messages with a deadline are held by the gateway */
    int64_t deadline_ms;
    struct bytes exchange;    /* delivery exchange, "" is the default exchange; text */
    struct bytes routing_key; /* text */
    struct bytes key;         /* the publisher's own name for it; len 0: none; text */
    struct bytes properties;  /* AMQP basic properties as in a content header frame: flags, then values
                                 (core/message/wire.h) */
    struct bytes body;
    enum message_hold hold;
    enum on_conflict on_conflict;
};

/* "scheduled" … "expired": the names users see, also the labels of the SQL enum. */
const char *message_state_name(enum message_state s);
/* 0, or -1 when the name is none of them. */
int message_state_parse(const char *name, enum message_state *out);

/* Bytes the message occupies beyond fixed fields (names, properties, body). */
size_t message_size(const struct message *m);

/* --- Who holds a message until it is due: the gateway or RabbitMQ. Decided here for all interfaces and for
 * hand-over. Pure. */
/* Which messages of a schema RabbitMQ may hold. */
enum hold_policy {
    HOLD_POLICY_NOTHING, /* no transport: handover.transport is timer, or auto found none */
    HOLD_POLICY_PLAIN,   /* only messages that no client can cancel: AMQP messages without a key */
    HOLD_POLICY_ALL,     /* handover.what = all */
};

/* The facts about one message. */
struct hold_request {
    bool is_named; /* the client knows its id: it was scheduled by SQL, HTTP, the control queue or the command
                      line */
    bool has_key;
    bool has_deadline; /* which RabbitMQ would not obey */
    bool has_wish;     /* x-postdate-hold, "hold", --hold */
    enum message_hold wish;
};

enum hold_policy hold_policy_make(bool has_transport, bool hands_over_all);
/* A wish overrides the configuration. Without a transport, or with a deadline, the gateway holds the message
 * in any case. */
enum message_hold hold_policy_decide(enum hold_policy p, const struct hold_request *r);

/* As the schema records it for its SQL functions: "nothing", "plain", "all". */
const char *hold_policy_name(enum hold_policy p);
/* 0, or -1 when it is none of them. */
int hold_policy_parse(struct bytes name, enum hold_policy *out);

/* Messages that are due in fewer ms than this are not handed over: handover.min_ahead, and at least twice
 * delivery.lead, because RabbitMQ releases messages one lead before they are due. */
int64_t hold_policy_least_ahead_ms(int64_t min_ahead_ms, int64_t lead_ms);

#endif
