/* A thread's alarm clock: anyone may ring it, its owner polls the descriptor. Ringing twice is ringing once.
 */
#ifndef POSTDATE_GATEWAY_RUNTIME_WAKE_H
#define POSTDATE_GATEWAY_RUNTIME_WAKE_H

#include "core/base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct wake {
    int fd; /* eventfd, not blocking */
};

int wake_open(struct wake *w, struct err *e);
void wake_close(struct wake *w);
void wake_ring(struct wake *w);  /* any thread */
void wake_clear(struct wake *w); /* its owner, after polling */

/* Waits until w rings, other_fd (-1: none) is readable, or timeout_ns passed (< 0: for ever). */
void wake_wait(struct wake *w, int other_fd, int64_t timeout_ns);

#endif
