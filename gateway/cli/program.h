/* Runs another program, without a shell: rabbitmqctl. */
#ifndef POSTDATE_GATEWAY_CLI_PROGRAM_H
#define POSTDATE_GATEWAY_CLI_PROGRAM_H

#include "core/base/buf.h"
#include "core/base/err.h"

struct program {
    const char *path;             /* looked up in PATH when it has no slash */
    const char *const *arguments; /* behind it, up to a NULL; at most PROGRAM_ARGUMENTS_MAX */
    int timeout_ms;
};
#define PROGRAM_ARGUMENTS_MAX 6

/* Its output goes into out, which the caller has initialised with a limit, its error output (cut) into words.
 * It is killed after timeout_ms. Returns its exit code, or -1 with e set: it could not be started or took too
 * long. */
int program_run(const struct program *p, struct buf *out, struct buf *words, struct err *e);

/* The rabbitmqctl that was asked for, or NULL: $RABBITMQCTL, or that in PATH. */
const char *program_rabbitmqctl(const char *asked);
/* What rabbitmqctl said was wrong, one line; a view into out or words. */
const char *program_rabbitmqctl_reason(struct buf *out, struct buf *words);

#endif
