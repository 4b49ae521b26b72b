/* Starts the gateway's threads, watches over them, and stops them in order. supervisor.c has the table of
 * them. Only the supervisor sees everything; the table says what each thread sees. */
#ifndef POSTDATE_GATEWAY_RUNTIME_SUPERVISOR_H
#define POSTDATE_GATEWAY_RUNTIME_SUPERVISOR_H

#include "gateway/config/cells.h"
#include "gateway/config/config.h"
#include <stdbool.h>

struct supervisor_options {
    const struct config *config; /* valid while it runs, as is … */
    const struct cells *cells;   /* … this one; NULL: none */
    const char *config_path;     /* as config_load takes it; for SIGHUP */
    bool once;                   /* do what there is to do now, and end */
};

/* Runs the gateway until it is asked to stop, or can't start; once in a process. Signals are blocked
 * (daemon.h) in the calling thread. The program's exit code. */
int supervisor_run(const struct supervisor_options *o);

#endif
