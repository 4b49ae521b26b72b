/* `postdated --once` as a child of this program: the one beside it, else the one in PATH. */
#ifndef POSTDATE_GATEWAY_CLI_GATEWAY_RUN_H
#define POSTDATE_GATEWAY_CLI_GATEWAY_RUN_H

#include "gateway/cli/cli.h"

#define GATEWAY_RUN_MISSING (-1) /* a code of gateway_run_ended: there is no such program */

/* Starts it with the same configuration; it logs errors only. Until it has ended, signals that would end this
 * program stop it instead. 0 or the exit code. */
int gateway_run_start(const struct cli *cli);
/* Has it ended? Then *code is what to exit with. If a signal stopped it, this ends the program by that. */
bool gateway_run_ended(int *code);
/* Stops it, and waits. */
void gateway_run_stop(void);

#endif
