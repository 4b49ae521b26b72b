/* Looking at a broker and at what one user may do there, without changing anything: for `postdate doctor`.
 *
 * Rights are tried with requests that RabbitMQ checks first and then must refuse, or that have nothing to do.
 * They show in the broker's log as channel errors. Unless it returns -1, each function leaves the connection
 * usable, also when the server closed the channel. One thread, the one that opened the connection. */
#ifndef POSTDATE_AMQP_INSPECT_INSPECT_H
#define POSTDATE_AMQP_INSPECT_INSPECT_H

#include "amqp/connection/broker_hosts.h"
#include <stdbool.h>
#include <stdint.h>

/* An URL's parts without the password. ERR_CONFIG. */
struct inspect_target {
    char address[BROKER_ADDRESS_MAX]; /* host:port of the first */
    int hosts;
    char user[256], vhost[256];
    bool tls;
    bool local; /* only loopback addresses: what goes there leaves no wire */
};
int inspect_target(const char *url, struct inspect_target *out, struct err *e);
/* Its "user:password"; the caller clears it. ERR_CONFIG. */
int inspect_login(const char *url, char *out, size_t out_size, struct err *e);

/* What the server calls itself, "RabbitMQ"; "" where it does not say. */
void inspect_product(const struct broker *b, char *out, size_t out_size);

struct inspect_queue {
    bool exists;
    uint32_t ready, consumers;
};
/* One that is there and cannot be used now (its node is down, its process has ended) is an error whose text
 * has RabbitMQ's words, ERR_NOT_FOUND. RabbitMQ may also not answer at all, ERR_AWAY, and a quorum queue
 * without a majority may look well. */
int inspect_queue(struct broker *b, const char *name, struct inspect_queue *out, struct err *e);
/* Is it missing, not down? RabbitMQ has one code for both. */
bool inspect_is_missing(const struct err *e);
int inspect_exchange(struct broker *b, const char *name, bool *exists, struct err *e);

enum inspect_right {
    INSPECT_CONFIGURE_EXCHANGE,
    INSPECT_CONFIGURE_QUEUE,
    INSPECT_READ_QUEUE,
    INSPECT_WRITE_QUEUE,    /* tried by unbinding it from `by`: also refused who may not read that */
    INSPECT_WRITE_EXCHANGE, /* the same */
};
struct inspect_subject {
    enum inspect_right right;
    const char *name; /* need not exist */
    const char *by;   /* another exchange, for the WRITE ones */
};
/* 1 allowed, 0 refused, -1 error. */
int inspect_right(struct broker *b, const struct inspect_subject *s, struct err *e);

/* One message through a queue of the connection's own, which goes with it: what the broker stamps, and
 * whether it takes messages at all. Waits at most about timeout_ms for each of confirm and delivery. */
struct inspect_echo {
    bool blocked; /* memory or disk alarm: the broker takes no messages; nothing else is filled */
    char reason[200];
    int64_t stamped_ms; /* header timestamp_in_ms, -1: the broker does not stamp */
};
int inspect_echo(struct broker *b, int timeout_ms, struct inspect_echo *out, struct err *e);

#endif
