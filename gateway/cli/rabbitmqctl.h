/* Asks RabbitMQ's administration: `rabbitmqctl eval` runs an Erlang program in the broker. Without a shell.
 */
#ifndef POSTDATE_GATEWAY_CLI_RABBITMQCTL_H
#define POSTDATE_GATEWAY_CLI_RABBITMQCTL_H

#include "core/base/buf.h"
#include "core/base/err.h"

struct rabbitmqctl {
    const char *path; /* NULL: $RABBITMQCTL, or that in PATH; afterwards, which it was */
    const char *node; /* NULL: the one that it reaches by itself */
    int timeout_ms;
    struct buf values, names; /* of the program's variables */
};

void rabbitmqctl_init(struct rabbitmqctl *r);
void rabbitmqctl_free(struct rabbitmqctl *r);
/* Gives a variable of the program a value, as Erlang writes it; bytes. */
void rabbitmqctl_set(struct rabbitmqctl *r, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void rabbitmqctl_set_bytes(struct rabbitmqctl *r, const char *name, struct bytes value);
/* What the program prints goes into out, which the caller has initialised with a limit; what is beyond is
 * forgotten. -1: it is ended after timeout_ms, or says why not (ERR_AWAY), or is not there (ERR_NOT_FOUND).
 */
int rabbitmqctl_eval(struct rabbitmqctl *r, const char *program, struct buf *out, struct err *e);

#endif
