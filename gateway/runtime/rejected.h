/* Invalid messages are not dropped: they are moved to the queue postdate.rejected, with the reason in
 * x-postdate-error. */
#ifndef POSTDATE_GATEWAY_RUNTIME_REJECTED_H
#define POSTDATE_GATEWAY_RUNTIME_REJECTED_H

#include "core/message/accept.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/runtime.h"

struct rejected {
    struct accept_input input; /* as received; a body without data was not read, and is left out */
    struct bytes reason;
    bool done; /* out: the queue has confirmed it */
};

/* Back-off of one thread, zero at first: while postdate.rejected answers slowly or not at all, it is tried
 * less and less often, so that other messages are not delayed. */
struct rejected_pace {
    int64_t again_ms, pause_ms; /* monotonic; at most a minute */
    int64_t said_ms;            /* monotonic; rejected_say_waits */
    char why[sizeof((struct err *)0)->text];
};

/* Publishes the list on a connection opened for this call, so that confirms do not mix with deliveries. -1:
 * call it again for those that are not done; returns at once until the next try is due. Blocks for at most
 * two seconds without an answer, for the connection and again for the confirms. */
int rejected_publish(const struct runtime *rt, struct rejected_pace *pace, struct rejected *list,
                     size_t count, struct err *e);

/* Identifies a rejected message in the log: by its x-postdate-id, or its publisher's message-id or
 * traceparent. Never empty. */
#define REJECTED_NAME_SIZE 160
const char *rejected_name(struct bytes properties, char out[REJECTED_NAME_SIZE]);
/* Logs, within the quota, that these (count >= 1) were moved; what: what one is called, "message". */
void rejected_say_moved(struct log_quota *quota, const struct rejected *list, size_t count, const char *what);
/* Logs, once a minute, that they cannot be moved now. */
void rejected_say_waits(struct rejected_pace *pace, const struct rejected *list, size_t count,
                        const char *what, const struct err *e);

/* Logs, once a minute, how an operator moves messages there that RabbitMQ cannot deliver from that queue
 * (broker_failed_inside). *said_ms: the caller's, 0 at first. */
void rejected_say_cure(const struct runtime *rt, const char *queue, int64_t *said_ms);

#endif
