/* What the program tells systemd, by the protocol of sd_notify(3): a datagram to $NOTIFY_SOCKET. Without that
 * variable each call does nothing. Main's. */
#ifndef POSTDATE_GATEWAY_RUNTIME_SERVICE_H
#define POSTDATE_GATEWAY_RUNTIME_SERVICE_H

#include <stdint.h>

/* Takes the variables out of the environment. */
void service_open(void);
/* Lines such as "READY=1\nSTATUS=waits for its servers". Never blocks. */
void service_notify(const char *lines);
/* The program goes on: to be called often; says so twice in each period that systemd waits ($WATCHDOG_USEC).
 */
void service_alive(int64_t now_ms);

#endif
