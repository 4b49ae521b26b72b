/* When a message asks to be delivered: the headers x-postdate-at, x-opt-delivery-time, x-opt-delivery-delay,
 * x-delay and x-postdate-spread. Pure, but for a spread without a name. */
#ifndef POSTDATE_CORE_MESSAGE_DELAY_H
#define POSTDATE_CORE_MESSAGE_DELAY_H

#include "core/base/buf.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include "core/message/wire.h"
#include <stdbool.h>
#include <stdint.h>

#define AT_HEADER "x-postdate-at"
/* The same under its AMQP 1.0 name. From RabbitMQ 4.4 on a quorum queue itself keeps a message that has it,
 * as a number, until then; so nothing that is published here has it. */
#define DELIVERY_TIME_HEADER "x-opt-delivery-time"

/* No due time lies below that, 3 March 1973 (as seconds: the year 5138): a time in seconds that somebody took
 * for milliseconds does, and would be "at once". */
#define DELAY_FIRST_MS INT64_C(100000000000)
/* That it does not. `name` is what the error calls it. ERR_REJECT. */
int delay_check_era(const char *name, int64_t due_ms, struct err *e);

struct delay_clock {
    int64_t now_ms;
    int64_t max_delay_ms;
    int64_t unasked_ms; /* the delay where no header asks for one; not beyond max_delay_ms */
    bool broker_stamps; /* count from the header timestamp_in_ms, where it is there and not ahead of now_ms */
    int64_t stamp_behind_ms; /* added to it: the broker's clock is that much behind */
    bool
        by_type; /* RabbitMQ's exchange type sent it, which has read x-delay: that alone counts, and is > 0 */
};

struct delay {
    int64_t due_ms;     /* 0..TIMESTAMP_MAX_MS; may lie in the past: then it is due at once */
    bool from_now;      /* due_ms was counted from now_ms */
    bool later;         /* a header asked for a time, or for a positive delay */
    int64_t x_delay_ms; /* x-delay as sent where it is a number in 1..max_delay_ms, else 0 */
};

/* Reads the delay from a checked table (wire_properties_read). x-postdate-at wins, then x-opt-delivery-time,
 * x-opt-delivery-delay, x-delay; none means unasked_ms, a relative one <= 0 at once. by_type: headers are
 * those that RabbitMQ has, and an x-delay that is none, or <= 0, is refused. The absolute ones are
 * milliseconds since 1970 (a number below DELAY_FIRST_MS is refused: it would be seconds), an AMQP timestamp,
 * or a time as timestamp_parse takes it. ERR_REJECT names the
 * header that counts, its value and what is allowed. */
int delay_read(struct bytes headers, const struct delay_clock *clock, struct delay *out, struct err *e);

/* The number in a field, truncated toward zero and saturated to int64: integers of every width, floats,
 * decimals and strings of up to 64 bytes such as "1500" or " -2.5 ". False for everything else, also NaN and
 * infinities. */
bool delay_number(const struct wire_field *f, int64_t *out);

/* What was sent, for an error text. */
const char *delay_describe(const struct wire_field *f, char *out, size_t out_size);

/* --- A message that may come at any time within so long after its due time, so that a thousand with one due
 * time do not come at once. The time is drawn when the message is accepted, and is its due time from then on.
 */
#define SPREAD_HEADER "x-postdate-spread"

/* What a message is called: the same name is drawn the same part of any spread, over SQL, too
 * (postdate.spread_of). Neither: a random part. */
struct spread_name {
    struct bytes key;        /* of this exchange */
    struct bytes exchange;   /* only with a key */
    struct bytes message_id; /* where there is no key */
};

/* 0..spread_ms. Uniform, over names and where there is none. */
int64_t spread_draw(const struct spread_name *name, int64_t spread_ms);

/* The header, in ms; *out_ms 0: there is none. headers: a checked table (wire_properties_read). A number of
 * ms of the kinds that x-delay has, or a duration such as "10m". ERR_REJECT names the header, its value and
 * what is allowed: 0..max_ms. */
int spread_read(struct bytes headers, int64_t max_ms, int64_t *out_ms, struct err *e);

/* ERR_REJECT: the end of the spread is too far ahead. what: what it is called where it was given. */
int spread_check(const char *what, int64_t spread_ms, int64_t ahead_ms, int64_t max_ms, struct err *e);

/* --- A point in time after which a message is not published any more: the header x-postdate-deadline, in
 * milliseconds since 1970. It stays on what is delivered, for what consumers refuse is not sent back after it
 * either. */
#define DEADLINE_HEADER "x-postdate-deadline"

/* The header of a message that is due at due_ms; *out_ms 0: there is none. headers: a checked table
 * (wire_properties_read). Numbers of the kinds that x-postdate-at has are taken. ERR_REJECT names the
 * header, its value and what is allowed. */
int deadline_read(struct bytes headers, int64_t due_ms, int64_t *out_ms, struct err *e);

/* The same of a message that is on its way already, where nobody can be told: 0 also where there is no
 * point in time. */
int64_t deadline_of(struct bytes headers);

/* ERR_REJECT: a deadline before the due time. what: what it is called where it was given. */
int deadline_check(const char *what, int64_t deadline_ms, int64_t due_ms, struct err *e);

/* --- Whether the broker's own time stamp can be trusted.
 *
 * RabbitMQ 3.12 and later can write the time of arrival into the header timestamp_in_ms of each message that
 * it takes. A delay that counts from it is exact also when the gateway reads late. But where the broker does
 * not overwrite the header, whoever publishes can set it, and a consumer that publishes again what it
 * received sends the stamp of the first journey along: such a message would be early. So the gateway
 * publishes a probe that has the header already, and believes in stamps only if the probe comes back with
 * another one. */
#define STAMP_HEADER "timestamp_in_ms"
/* A broker whose clock differs more than that from the database's is not believed. */
#define STAMP_SKEW_MAX_MS 1000

enum stamp_verdict {
    STAMP_NONE,    /* the broker leaves the header as it is */
    STAMP_SKEWED,  /* it stamps, by a clock that is too far from the database's */
    STAMP_TRUSTED, /* it overwrites the header with the time of arrival */
};

struct stamp_finding {
    enum stamp_verdict verdict;
    /* How far the broker's clock is behind the database's, at most; negative: it is ahead. 0 with STAMP_NONE.
     * A stamp plus this is never before the message came, by the database's clock. */
    int64_t behind_ms;
};

/* Appends a probe's properties: a message that claims to have come a millisecond after the beginning of 1970.
 */
void stamp_put_probe(struct buf *properties);

/* What the probe's properties say when it comes back. It was published after sent_ms and came back before
 * received_ms, both by the database's clock, milliseconds since 1970. Anything unexpected is STAMP_NONE. */
struct stamp_finding stamp_judge(struct bytes properties, int64_t sent_ms, int64_t received_ms);

#endif
