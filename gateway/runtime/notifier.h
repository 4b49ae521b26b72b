/* Wakes a thread: any thread may notify, the owner polls the descriptor. Several notifications before a poll
 * are one. */
#ifndef POSTDATE_GATEWAY_RUNTIME_NOTIFIER_H
#define POSTDATE_GATEWAY_RUNTIME_NOTIFIER_H

#include "core/base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct notifier {
    int fd; /* eventfd, not blocking */
};

int notifier_open(struct notifier *w, struct err *e);
void notifier_close(struct notifier *w);
void notifier_notify(struct notifier *w); /* any thread */

/* Waits until w is notified, other_fd (-1: none) is readable, or timeout_ns has passed (< 0: no limit). */
void notifier_wait(struct notifier *w, int other_fd, int64_t timeout_ns);

#endif
