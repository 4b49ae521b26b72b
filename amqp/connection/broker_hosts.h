/* The hosts of one AMQP URL: which a connection tries first, and what became of each.
 *
 * Each connection begins with another one, at random, so that the connections of all gateways spread over the
 * nodes of a cluster. Who failed lately is tried last: one host that does not answer costs its time once, not
 * with every connection. One object for all connections of a program, any thread; it outlives them. */
#ifndef POSTDATE_AMQP_CONNECTION_BROKER_HOSTS_H
#define POSTDATE_AMQP_CONNECTION_BROKER_HOSTS_H

#include "amqp/connection/broker.h"
#include <stdbool.h>

#define BROKER_HOSTS_MAX 16
#define BROKER_ADDRESS_MAX 272 /* "host:port" with its NUL */

struct broker_hosts;

struct broker_hosts *broker_hosts_new(void); /* NULL: out of memory */
void broker_hosts_free(struct broker_hosts *h);

/* What is new about a host since the last call: it takes no connections (and why), or does so again. Each is
 * told once. False: nothing is new. */
struct broker_host_news {
    bool back;
    char address[BROKER_ADDRESS_MAX], why[300];
};
bool broker_hosts_take_news(struct broker_hosts *h, struct broker_host_news *out);

/* b is the new connection of `who`. False: as before, or there is only one host. True: it is on another host
 * than the one before, whose address goes into `before` ("": this is its first). */
bool broker_hosts_moved(struct broker_hosts *h, const char *who, const struct broker *b,
                        char before[static BROKER_ADDRESS_MAX]);

#endif
