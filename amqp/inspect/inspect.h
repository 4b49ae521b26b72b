/* Inspects RabbitMQ, and the rights of one user there, without changing anything: for `postdate doctor`.
 *
 * Rights are tested by requests that RabbitMQ refuses after it has checked the right, or that change nothing.
 * They appear in RabbitMQ's log as channel errors. Unless it returns -1, each function leaves the connection
 * usable, even if the server closed the channel. One thread, the one that opened the connection. */
#ifndef POSTDATE_AMQP_INSPECT_INSPECT_H
#define POSTDATE_AMQP_INSPECT_INSPECT_H

#include "amqp/connection/broker_hosts.h"
#include <stdbool.h>
#include <stdint.h>

/* The parts of a URL, without the password. ERR_CONFIG. */
struct inspect_target {
    char address[BROKER_ADDRESS_MAX]; /* host:port of the first */
    int hosts;
    char user[256], vhost[256];
    bool tls;
    bool local; /* only loopback addresses: data does not leave this machine */
};
int inspect_target(const char *url, struct inspect_target *out, struct err *e);
/* Its "user:password"; the caller clears it. ERR_CONFIG. */
int inspect_login(const char *url, char *out, size_t out_size, struct err *e);

/* The server's product name, "RabbitMQ"; "" if missing. */
void inspect_product(const struct broker *b, char *out, size_t out_size);

struct inspect_queue {
    bool exists;
    uint32_t ready, consumers;
};
/* A queue that exists but is unavailable (its node is down, its process has ended) is ERR_NOT_FOUND with
 * RabbitMQ's text. RabbitMQ may also not answer, ERR_AWAY; and a quorum queue without a majority may look
 * healthy. */
int inspect_queue(struct broker *b, const char *name, struct inspect_queue *out, struct err *e);
/* Is the queue of this ERR_NOT_FOUND missing, rather than down? RabbitMQ has one code for both. */
bool inspect_is_missing(const struct err *e);
int inspect_exchange(struct broker *b, const char *name, bool *exists, struct err *e);

enum inspect_right {
    INSPECT_CONFIGURE_EXCHANGE,
    INSPECT_CONFIGURE_QUEUE,
    INSPECT_READ_QUEUE,
    INSPECT_WRITE_QUEUE, /* tested by unbinding it from `by`: also refused without read permission on `by` */
    INSPECT_WRITE_EXCHANGE, /* the same */
};
struct inspect_subject {
    enum inspect_right right;
    const char *name; /* need not exist */
    const char *by;   /* another exchange, for the WRITE ones */
};
/* 1 allowed, 0 refused, -1 error. */
int inspect_right(struct broker *b, const struct inspect_subject *s, struct err *e);

/* Publishes and consumes one message through an exclusive queue: does RabbitMQ accept messages, and add a
 * timestamp? Waits at most about timeout_ms for each of confirm and delivery. */
struct inspect_echo {
    bool blocked; /* memory or disk alarm: RabbitMQ blocks publishers; only reason is filled */
    char reason[200];
    int64_t stamped_ms; /* header timestamp_in_ms; -1: RabbitMQ adds none */
};
int inspect_echo(struct broker *b, int timeout_ms, struct inspect_echo *out, struct err *e);

#endif
