/* Which destinations refuse what is published to them: a full queue does, with `overflow` set to
 * reject-publish. Its messages are tried again until it takes them, and nobody else would notice. So it is
 * for the log and for metrics: once when one begins to refuse, and once when none has refused for a while.
 *
 * Thread-safe. Bounded: of more destinations than it has room for, the rest are not known. One whose messages
 * come no more is forgotten: they may have been ended by hand. Times are monotonic. */
#ifndef POSTDATE_GATEWAY_PUBLISH_REFUSALS_H
#define POSTDATE_GATEWAY_PUBLISH_REFUSALS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REFUSALS_MAX 256
#define REFUSALS_QUIET_MS 5000 /* took a message, and refused none for so long: it is over */
/* of an exchange, a routing key and the first message */
#define DESTINATION_NAME_SIZE 320
#define REFUSALS_FORGET_MS (20 * 60000) /* twice the longest wait between two tries by default */

struct inflight;

struct refusal {
    uint64_t destination;
    int64_t at_ms; /* the last one */
    bool taken;    /* a message since then */
};

struct refusals {
    pthread_mutex_t lock;
    struct refusal list[REFUSALS_MAX];
    atomic_int count;
    bool said;
    char name[DESTINATION_NAME_SIZE]; /* of the first */
};

void refusals_open(struct refusals *r);
void refusals_close(struct refusals *r);
/* RabbitMQ refused h. */
void refusals_add(struct refusals *r, const struct inflight *h, int64_t now_ms);
/* RabbitMQ took h, or has no queue for it. Cheap where nothing is refused. */
void refusals_note_taken(struct refusals *r, const struct inflight *h);
/* 1: for the log, one refuses, named in name; -1: none does any more; 0: nothing new. *count: how many do. */
int refusals_news(struct refusals *r, int64_t now_ms, char *name, size_t name_size, int *count);

#endif
