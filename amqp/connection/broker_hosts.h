/* The hosts of one AMQP URL: in which order a connection tries them, and which of them fail.
 *
 * Each connection tries them in random order, so that the connections of all gateways spread over the nodes
 * of a cluster. Hosts that failed recently are tried last: a host that does not answer costs its timeout
 * once, not for every connection. One object for all connections of a program, any thread; it outlives them.
 */
#ifndef POSTDATE_AMQP_CONNECTION_BROKER_HOSTS_H
#define POSTDATE_AMQP_CONNECTION_BROKER_HOSTS_H

#include "amqp/connection/broker.h"
#include <stdbool.h>

#define BROKER_HOSTS_MAX 16
#define BROKER_ADDRESS_MAX 272 /* "host:port" with its NUL */

struct broker_hosts;

struct broker_hosts *broker_hosts_new(void); /* NULL: out of memory */
void broker_hosts_free(struct broker_hosts *h);

/* The next change of a host since the last call: it stopped accepting connections (and why), or accepts them
 * again. Each change is returned once. False: no change. */
struct broker_host_news {
    bool back;
    char address[BROKER_ADDRESS_MAX], why[300];
};
bool broker_hosts_take_news(struct broker_hosts *h, struct broker_host_news *out);

/* b is the new connection named `who`. False: the host is the same as before, or there is only one. True: it
 * is on a different host; `before` gets the previous address ("": this is the first connection). */
bool broker_hosts_moved(struct broker_hosts *h, const char *who, const struct broker *b,
                        char before[static BROKER_ADDRESS_MAX]);

#endif
