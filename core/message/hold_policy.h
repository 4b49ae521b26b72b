/* Who waits with a message until it is due: the gateway, or the broker. Every way in asks here, and so does
 * what hands messages over. Pure. */
#ifndef POSTDATE_CORE_MESSAGE_HOLD_POLICY_H
#define POSTDATE_CORE_MESSAGE_HOLD_POLICY_H

#include "core/base/bytes.h"
#include "core/message/message.h"
#include <stdbool.h>
#include <stdint.h>

/* What the broker may wait with, of all messages of a schema. */
enum hold_policy {
    HOLD_POLICY_NOTHING, /* no transport: handover.transport is timer, or auto found none */
    HOLD_POLICY_PLAIN,   /* what nobody can name and cancel: AMQP messages without a key */
    HOLD_POLICY_ALL,     /* handover.what = all */
};

/* What is known of one message. */
struct hold_request {
    bool is_named; /* its id was handed out: it came by SQL, HTTP, the control queue or the command line */
    bool has_key;
    bool has_deadline; /* RabbitMQ would deliver it after that, too */
    bool has_wish;     /* x-postdate-hold, "hold", --hold */
    enum message_hold wish;
};

enum hold_policy hold_policy_make(bool has_transport, bool hands_over_all);
/* A wish overrides what the configuration says, but nobody can wait where there is no transport, and what has
 * a deadline the gateway holds whatever is wished. */
enum message_hold hold_policy_decide(enum hold_policy p, const struct hold_request *r);

/* As the schema records it for its SQL functions: "nothing", "plain", "all". */
const char *hold_policy_name(enum hold_policy p);
/* 0, or -1 when it is none of them. */
int hold_policy_parse(struct bytes name, enum hold_policy *out);

/* What is due sooner than so many ms from now is not handed over: handover.min_ahead, and at least twice
 * delivery.lead, because RabbitMQ releases that long before due. */
int64_t hold_policy_least_ahead_ms(int64_t min_ahead_ms, int64_t lead_ms);

#endif
