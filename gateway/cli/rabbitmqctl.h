/* Runs an Erlang program in RabbitMQ by `rabbitmqctl eval`, without a shell. */
#ifndef POSTDATE_GATEWAY_CLI_RABBITMQCTL_H
#define POSTDATE_GATEWAY_CLI_RABBITMQCTL_H

#include "core/base/buf.h"
#include "core/base/err.h"

struct rabbitmqctl {
    const char *path; /* NULL: $RABBITMQCTL, or rabbitmqctl in PATH; afterwards, the path that was used */
    const char *node; /* NULL: rabbitmqctl's default */
    int timeout_ms;
    struct buf values, names; /* of the program's variables */
};

void rabbitmqctl_init(struct rabbitmqctl *r);
void rabbitmqctl_free(struct rabbitmqctl *r);
/* Sets a variable of the program to an Erlang term (fmt), or to bytes. */
void rabbitmqctl_set(struct rabbitmqctl *r, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void rabbitmqctl_set_bytes(struct rabbitmqctl *r, const char *name, struct bytes value);
/* out gets the program's output; the caller has initialised it with a limit, beyond which output is dropped.
 * -1: ERR_AWAY (killed after timeout_ms, or it reports an error) or ERR_NOT_FOUND (rabbitmqctl is missing).
 */
int rabbitmqctl_eval(struct rabbitmqctl *r, const char *program, struct buf *out, struct err *e);

#endif
