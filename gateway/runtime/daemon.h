/* What the program hears and tells as a service. */
#ifndef POSTDATE_GATEWAY_RUNTIME_DAEMON_H
#define POSTDATE_GATEWAY_RUNTIME_DAEMON_H

#include "gateway/runtime/runtime.h"

/* The signals: one thread waits for them, and nothing else runs in it, so that a signal is acted on at once
 * whatever the servers do. */
struct signals {
    struct runtime *runtime; /* what the program ends with when a stop takes too long, if not with 1 */
    const char *config_path; /* SIGHUP reads the log settings again */
    void (*stop)(void *ctx, int sig); /* the first SIGTERM or SIGINT; a second one ends the process */
    void *ctx;
};

/* In main, before there are threads: they inherit it. */
void signals_block(void);
/* For as long as the program runs. 0; -1: there is no thread to be had. */
int signals_start(struct signals *s);

/* What systemd is told, by the protocol of sd_notify(3): a datagram to $NOTIFY_SOCKET. Without that variable
 * each call does nothing. Main's. */

/* Takes the variables out of the environment. */
void service_open(void);
/* Lines such as "READY=1\nSTATUS=waits for its servers". Never blocks. */
void service_notify(const char *lines);
/* The program goes on: to be called often; says so twice in each period that systemd waits ($WATCHDOG_USEC).
 */
void service_alive(int64_t now_ms);

#endif
