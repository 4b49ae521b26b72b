/* A message as Postdate stores it. All bytes are views; whoever fills the struct says who owns them. */
#ifndef POSTDATE_CORE_MESSAGE_MESSAGE_H
#define POSTDATE_CORE_MESSAGE_MESSAGE_H

#include "core/base/bytes.h"
#include "core/message/message_id.h"
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
};

enum message_hold {
    HOLD_GATEWAY, /* somebody may still cancel it, or it must not wait in the broker */
    HOLD_BROKER,  /* may be handed to the broker when it enters the window */
};

enum on_conflict {
    ON_CONFLICT_KEEP,
    ON_CONFLICT_REPLACE,
    ON_CONFLICT_REJECT,
};

struct message {
    struct message_id id;
    int64_t due_ms;           /* ms since 1970 */
    int64_t counted_from_ms;  /* the "now" that due_ms was counted from, which is counted again from the clock
                                 of  the transaction that stores it; 0: a point in time of its own */
    int64_t deadline_ms;      /* not published after it; 0: none. Then the gateway holds it */
    struct bytes exchange;    /* delivery exchange, "" is the default exchange; text */
    struct bytes routing_key; /* text */
    struct bytes key;         /* the user's own name for it; len 0: none; text */
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

#endif
