/* The due time, spread and deadline of a message, from its headers: x-postdate-at, x-opt-delivery-time,
 * x-opt-delivery-delay, x-delay and x-postdate-spread. Pure, except for a spread without a name, which is
 * random. */
#ifndef POSTDATE_CORE_MESSAGE_DELAY_H
#define POSTDATE_CORE_MESSAGE_DELAY_H

#include "core/base/buf.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include "core/message/wire.h"
#include <stdbool.h>
#include <stdint.h>

#define AT_HEADER "x-postdate-at"
/* The AMQP 1.0 name of x-postdate-at. From RabbitMQ 4.4 on, a quorum queue delays a message that has it as a
 * number, so no message is published with it. */
#define DELIVERY_TIME_HEADER "x-opt-delivery-time"

/* Due times before this, 3 March 1973 (read as seconds: the year 5138), are rejected: they are times in
 * seconds instead of milliseconds, and would mean "at once". */
#define DELAY_FIRST_MS INT64_C(100000000000)
/* Rejects due_ms below DELAY_FIRST_MS. `name`: of the field, for the error. ERR_REJECT. */
int delay_check_era(const char *name, int64_t due_ms, struct err *e);

struct delay_clock {
    int64_t now_ms;
    int64_t max_delay_ms;
    int64_t unasked_ms; /* the delay without a delay header; at most max_delay_ms */
    bool broker_stamps; /* delays count from the header timestamp_in_ms, if present and not after now_ms */
    int64_t stamp_behind_ms; /* added to it: how far RabbitMQ's clock is behind the database's */
    bool by_type; /* from RabbitMQ's exchange type, which has read x-delay: only x-delay applies, and must be
                     > 0 */
};

struct delay {
    int64_t due_ms;     /* 0..TIMESTAMP_MAX_MS; in the past: due at once */
    bool from_now;      /* due_ms was counted from now_ms */
    bool later;         /* a header has a time, or a positive delay */
    int64_t x_delay_ms; /* x-delay as sent where it is a number in 1..max_delay_ms, else 0 */
};

/* Reads the delay from a checked table (wire_properties_read). Precedence: x-postdate-at,
 * x-opt-delivery-time, x-opt-delivery-delay, x-delay; without any, unasked_ms. A delay <= 0 means at once.
 * by_type: an x-delay that is missing, invalid or <= 0 is rejected. Absolute times are milliseconds since
 * 1970 (numbers below DELAY_FIRST_MS are rejected, as they are seconds), an AMQP timestamp, or a text for
 * timestamp_parse. ERR_REJECT names the header that applies, its value and what is allowed. */
int delay_read(struct bytes headers, const struct delay_clock *clock, struct delay *out, struct err *e);

/* The number in a field, truncated toward zero and saturated to int64: integers of every width, floats,
 * decimals and strings of up to 64 bytes such as "1500" or " -2.5 ". False for everything else, also NaN and
 * infinities. */
bool delay_number(const struct wire_field *f, int64_t *out);

/* The field's value, for an error text. Returns out. */
const char *delay_describe(const struct wire_field *f, char *out, size_t out_size);

/* --- A spread: a random delay after the due time, so that a thousand messages with one due time do not
 * arrive at once. It is drawn when the message is accepted, and the sum is the due time from then on. */
#define SPREAD_HEADER "x-postdate-spread"

/* Identifies a message for its spread: the same name always gets the same part of a spread, also from SQL
 * (postdate.spread_of). Without key and message_id: a random part. */
struct spread_name {
    struct bytes key;        /* of this exchange */
    struct bytes exchange;   /* only with a key */
    struct bytes message_id; /* where there is no key */
};

/* 0..spread_ms, uniform over names, and random without one. */
int64_t spread_draw(const struct spread_name *name, int64_t spread_ms);

/* The header, in ms; *out_ms 0: there is none. headers: a checked table (wire_properties_read). A number of
 * ms as for x-delay, or a duration such as "10m". ERR_REJECT names the header, its value and what is allowed:
 * 0..max_ms. */
int spread_read(struct bytes headers, int64_t max_ms, int64_t *out_ms, struct err *e);

/* ERR_REJECT: the end of the spread is too far ahead. what: the name of the field or option, for the error.
 */
int spread_check(const char *what, int64_t spread_ms, int64_t ahead_ms, int64_t max_ms, struct err *e);

/* --- A deadline: a message is not published after it. Header x-postdate-deadline, in milliseconds since
 * 1970. The delivered message keeps the header, because retries of rejected messages obey it, too. */
#define DEADLINE_HEADER "x-postdate-deadline"

/* The header of a message that is due at due_ms; *out_ms 0: there is none. headers: a checked table
 * (wire_properties_read). Numbers are allowed as for x-postdate-at. ERR_REJECT names the header, its value
 * and what is allowed. */
int deadline_read(struct bytes headers, int64_t due_ms, int64_t *out_ms, struct err *e);

/* The same for a message that was accepted before, so that no client can get an error: 0 if there is none or
 * it is invalid. */
int64_t deadline_of(struct bytes headers);

/* ERR_REJECT: the deadline is before the due time. what: the name of the field or option, for the error. */
int deadline_check(const char *what, int64_t deadline_ms, int64_t due_ms, struct err *e);

/* --- Can RabbitMQ's timestamps be trusted? RabbitMQ 3.12 and later can write the time of arrival into the
 * header timestamp_in_ms of each message. A delay that counts from it is exact even if the gateway reads the
 * message late. But if RabbitMQ does not overwrite the header, any publisher can set it, and a consumer that
 * republishes a message keeps the old timestamp: that message would be early. So the gateway publishes a test
 * message with the header, and trusts timestamps only if it returns with another value. */
#define STAMP_HEADER "timestamp_in_ms"
/* If RabbitMQ's clock differs from the database's by more than this, its timestamps are ignored. */
#define STAMP_SKEW_MAX_MS 1000

enum stamp_verdict {
    STAMP_NONE,    /* RabbitMQ does not overwrite the header */
    STAMP_SKEWED,  /* it does, but its clock differs too much from the database's */
    STAMP_TRUSTED, /* it overwrites the header with the time of arrival */
};

struct stamp_finding {
    enum stamp_verdict verdict;
    /* How far RabbitMQ's clock is behind the database's, at most; negative: ahead. 0 with STAMP_NONE. A
     * timestamp plus this is never before the message's arrival by the database's clock. */
    int64_t behind_ms;
};

/* Appends the properties of the test message, with a timestamp of one millisecond after the beginning of
 * 1970. */
void stamp_put_probe(struct buf *properties);

/* The result of the test, from the properties of the test message when it returns. It was published after
 * sent_ms and received before received_ms, both by the database's clock, milliseconds since 1970. Anything
 * unexpected is STAMP_NONE. */
struct stamp_finding stamp_judge(struct bytes properties, int64_t sent_ms, int64_t received_ms);

#endif
