/* Signals, and notifications to systemd. */
#ifndef POSTDATE_GATEWAY_RUNTIME_DAEMON_H
#define POSTDATE_GATEWAY_RUNTIME_DAEMON_H

#include "gateway/runtime/runtime.h"

/* The signals: one thread waits for them and does nothing else, so that a signal takes effect at once, even
 * if the servers hang. */
struct signals {
    struct runtime *runtime;          /* has the exit code if a stop takes too long, unless it is 1 */
    const char *config_path;          /* SIGHUP reloads its log settings */
    void (*stop)(void *ctx, int sig); /* the first SIGTERM or SIGINT; a second one ends the process */
    void *ctx;
};

/* Call it in main before any thread starts: threads inherit the mask. */
void signals_block(void);
/* Starts the thread, which runs until the program exits. -1: no thread could be created. */
int signals_start(struct signals *s);

/* Notifications to systemd, by the protocol of sd_notify(3): a datagram to $NOTIFY_SOCKET. Without that
 * variable each call does nothing. Thread: main. */

/* Reads the variables, and removes them from the environment. */
void service_open(void);
/* Lines such as "READY=1\nSTATUS=waits for its servers". Never blocks. */
void service_notify(const char *lines);
/* The watchdog: call it often; notifies systemd twice in each period of $WATCHDOG_USEC. */
void service_alive(int64_t now_ms);

#endif
