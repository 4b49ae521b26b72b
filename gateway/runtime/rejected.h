/* Bad input is rejected, not dropped: it goes to the queue postdate.rejected, with the reason in
 * x-postdate-error. */
#ifndef POSTDATE_GATEWAY_RUNTIME_REJECTED_H
#define POSTDATE_GATEWAY_RUNTIME_REJECTED_H

#include "core/message/accept.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/runtime.h"

struct rejected {
    struct accept_input input; /* as it came; a body without data was not read, and is left out */
    struct bytes reason;
    bool done; /* out: it is in the queue */
};

/* A thread's own, zero at first: while postdate.rejected answers slowly or not at all it is tried more and
 * more seldom, so that all others are not kept by it. */
struct rejected_pace {
    int64_t again_ms, pause_ms; /* monotonic; at most a minute */
    int64_t said_ms;            /* monotonic; rejected_say_waits */
    char why[sizeof((struct err *)0)->text];
};

/* Publishes them over a connection of its own, opened for this call, so that confirms do not mix with
 * deliveries. -1: those that are not done are to be offered again; between two tries that is at once. Blocks
 * for two seconds without any answer at most, once for the connection and once for the confirms. */
int rejected_publish(const struct runtime *rt, struct rejected_pace *pace, struct rejected *list,
                     size_t count, struct err *e);

/* By what a message that was refused can be found again, for the log: the x-postdate-id that it had already,
 * else what its publisher wrote: message-id, or traceparent. Never empty. */
#define REJECTED_NAME_SIZE 160
const char *rejected_name(struct bytes properties, char out[REJECTED_NAME_SIZE]);
/* Says, as far as the quota goes, that these (count >= 1) were moved; what one is called: "message". */
void rejected_say_moved(struct log_quota *quota, const struct rejected *list, size_t count, const char *what);
/* Says, once a minute, that they cannot be moved now. */
void rejected_say_waits(struct rejected_pace *pace, const struct rejected *list, size_t count,
                        const char *what, const struct err *e);

/* Says, once a minute, how an operator moves there what RabbitMQ cannot deliver from that queue
 * (broker_failed_inside). *said_ms: the caller's, 0 at first. */
void rejected_say_cure(const struct runtime *rt, const char *queue, int64_t *said_ms);

#endif
