/* Addresses (exchange and routing key) that reject messages: a full queue with `overflow` set to
 * reject-publish, a routing key without a queue, an exchange that is missing or that the gateway may not
 * write to. Their messages are retried for hours, which nothing else would show. So each address is logged
 * once when it begins to reject and once when that ends, and all are counted in metrics.
 *
 * Thread-safe. Bounded: addresses beyond REFUSALS_MAX are not recorded, and lines per minute are limited. An
 * address without further tries is removed: its messages may have been cancelled. Times are monotonic. */
#ifndef POSTDATE_GATEWAY_DELIVER_REFUSALS_H
#define POSTDATE_GATEWAY_DELIVER_REFUSALS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REFUSALS_MAX 256
#define REFUSALS_LINES 10      /* per minute; the others are logged later, if they still reject */
#define REFUSALS_QUIET_MS 5000 /* the end: it accepted a message, and rejected none for this time */
/* text with an exchange, a routing key and the first message */
#define DESTINATION_NAME_SIZE 320
#define REFUSAL_REASON_SIZE 340 /* RabbitMQ's text has up to 255 bytes */
#define REFUSALS_SLACK_MS 10000 /* after this time past the expected try, there is none */

struct inflight;

/* What rejects messages: one routing key of an exchange, or the exchange for all keys. */
enum refusal_of { REFUSAL_OF_KEY, REFUSAL_OF_EXCHANGE };

struct refusal {
    uint64_t address; /* a hash */
    int64_t at_ms;    /* the last rejection */
    int64_t again_ms; /* when the last expected try is due */
    bool taken;       /* it accepted a message since at_ms */
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
    bool taken; /* over: RabbitMQ accepted a message; else the expected tries did not take place */
    char name[DESTINATION_NAME_SIZE];
    char reason[REFUSAL_REASON_SIZE]; /* if not over */
};

void refusals_open(struct refusals *r);
void refusals_close(struct refusals *r);
/* h was rejected, for this reason. */
void refusals_add(struct refusals *r, const struct inflight *h, enum refusal_of of, const char *reason,
                  int64_t now_ms);
/* h, which was rejected, is tried again in wait_ms. An address without the expected tries is removed. */
void refusals_expect(struct refusals *r, const struct inflight *h, int64_t now_ms, int64_t wait_ms);
/* RabbitMQ accepted h. Cheap while no address is recorded. */
void refusals_note_taken(struct refusals *r, const struct inflight *h);
/* The destination of h, for a log line. */
void refusals_print_name(const struct inflight *h, enum refusal_of of, char out[DESTINATION_NAME_SIZE]);
/* The number of addresses that reject messages. */
int refusals_count(struct refusals *r, int64_t now_ms);
/* The next line for the log; false: there is none. */
bool refusals_news(struct refusals *r, int64_t now_ms, struct refusal_news *out);

#endif
