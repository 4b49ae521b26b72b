/* Whether the broker's own time stamp can be trusted. Pure.
 *
 * RabbitMQ 3.12 and later can write the time of arrival into the header timestamp_in_ms of each message that
 * it takes. A delay that counts from it is exact also when the gateway reads late. But where the broker does
 * not overwrite the header, whoever publishes can set it, and a consumer that publishes again what it
 * received sends the stamp of the first journey along: such a message would be early. So the gateway
 * publishes a probe that has the header already, and believes in stamps only if the probe comes back with
 * another one. */
#ifndef POSTDATE_CORE_MESSAGE_STAMP_H
#define POSTDATE_CORE_MESSAGE_STAMP_H

#include "core/base/buf.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include <stdint.h>

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
