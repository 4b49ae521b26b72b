/* Starts the gateway's threads, monitors them, and stops them in order. supervisor.c has the table of
 * threads. Only the supervisor has access to everything; the table defines the access of each thread. */
#ifndef POSTDATE_GATEWAY_PROGRAM_SUPERVISOR_H
#define POSTDATE_GATEWAY_PROGRAM_SUPERVISOR_H

#include "gateway/config/cells.h"
#include "gateway/config/config.h"
#include <stdbool.h>

struct supervisor_options {
    const struct config *config; /* valid while it runs, as is … */
    const struct cells *cells;   /* … this one; NULL: none */
    const char *config_path;     /* as for config_load; for SIGHUP */
    bool once;                   /* process pending work once, and exit */
};

/* Runs the gateway until it is stopped, or fails to start; once per process. Signals must be blocked
 * (daemon.h) in the calling thread. Returns the program's exit code; of
 * --once that a signal interrupted, minus that signal. */
int supervisor_run(const struct supervisor_options *o);

#endif
