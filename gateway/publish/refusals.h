/* Which addresses refuse what is published to them. A message that is refused is tried again for hours, and
 * nobody else would notice: a full queue with `overflow` set to reject-publish, a routing key without a
 * queue, an exchange that is missing or that the gateway may not write to. So each address is for the log,
 * once when it begins to refuse and once when that is over, and all of them are for metrics.
 *
 * Thread-safe. Bounded: of more addresses than it has room for, the rest are not known, and so many lines a
 * minute are given. One whose messages come no more is forgotten: they may have been ended by hand. Times are
 * monotonic. */
#ifndef POSTDATE_GATEWAY_PUBLISH_REFUSALS_H
#define POSTDATE_GATEWAY_PUBLISH_REFUSALS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REFUSALS_MAX 256
#define REFUSALS_LINES 10      /* a minute; the others are said later, if they still refuse */
#define REFUSALS_QUIET_MS 5000 /* took a message, and refused none for so long: it is over */
/* of an exchange, a routing key and the first message */
#define DESTINATION_NAME_SIZE 320
#define REFUSAL_REASON_SIZE 340 /* RabbitMQ's text has up to 255 bytes */
#define REFUSALS_SLACK_MS 10000 /* the next try did not come for so long: there is none */

struct inflight;

/* What refuses: this routing key of the exchange, or the exchange whatever the key. */
enum refusal_of { REFUSAL_OF_KEY, REFUSAL_OF_EXCHANGE };

struct refusal {
    uint64_t address; /* a hash */
    int64_t at_ms;    /* the last one */
    int64_t again_ms; /* when the last of the next tries is to come */
    bool taken;       /* a message since at_ms */
    bool said;
    char name[DESTINATION_NAME_SIZE];
    char reason[REFUSAL_REASON_SIZE];
};

struct refusals {
    pthread_mutex_t lock;
    struct refusal list[REFUSALS_MAX];
    atomic_int count;
    int lines;
    int64_t lines_since_ms;
};

/* A line for the log. */
struct refusal_news {
    bool over;
    bool taken; /* over: RabbitMQ took one; else no try was refused that should have come */
    char name[DESTINATION_NAME_SIZE];
    char reason[REFUSAL_REASON_SIZE]; /* unless it is over */
};

void refusals_open(struct refusals *r);
void refusals_close(struct refusals *r);
/* h was refused: why. */
void refusals_add(struct refusals *r, const struct inflight *h, enum refusal_of of, const char *reason,
                  int64_t now_ms);
/* h, which was refused, is tried again in wait_ms. An address whose tries do not come is forgotten. */
void refusals_expect(struct refusals *r, const struct inflight *h, int64_t now_ms, int64_t wait_ms);
/* RabbitMQ took h. Cheap where nothing is refused. */
void refusals_note_taken(struct refusals *r, const struct inflight *h);
/* What a line says of where h goes. */
void refusals_print_name(const struct inflight *h, enum refusal_of of, char out[DESTINATION_NAME_SIZE]);
/* How many addresses refuse. */
int refusals_count(struct refusals *r, int64_t now_ms);
/* The next line for the log; false: there is none. */
bool refusals_news(struct refusals *r, int64_t now_ms, struct refusal_news *out);

#endif
