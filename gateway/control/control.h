/* The control queue: requests as JSON in messages, answers to reply_to. See control.c. */
#ifndef POSTDATE_GATEWAY_CONTROL_CONTROL_H
#define POSTDATE_GATEWAY_CONTROL_CONTROL_H

#include "core/base/err.h"
#include "gateway/ops/executor.h"
#include "gateway/runtime/runtime.h"

struct control;
struct tokens;

/* Starts its thread, which exits at STOP_INTAKE. The executor, the tokens (NULL: http.tokens is off) and the
 * notifier, which wakes it, must outlive it. NULL: out of memory or threads. */
struct control *control_open(struct runtime *rt, struct executor *executor, struct tokens *tokens,
                             struct notifier *notifier, struct err *e);
/* Waits for the thread to exit. The executor may still have requests. */
void control_join(struct control *c);
/* After executor_stop. NULL is fine. */
void control_close(struct control *c);

#endif
