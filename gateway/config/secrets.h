/* Keeps passwords out of core files and of other programs' environments. */
#ifndef POSTDATE_GATEWAY_CONFIG_SECRETS_H
#define POSTDATE_GATEWAY_CONFIG_SECRETS_H

#include <stdbool.h>

/* Allows core files, and access to this process by processes of the same user (debuggers, /proc/PID/environ,
 * /proc/PID/mem); root always has access. main calls it with false first, before a secret is read. From any
 * thread. */
void secrets_allow_dumps(bool allowed);

/* Removes variables that may contain a secret (POSTDATE_…, and libpq's PG…) from the environment. Call it in
 * a child, before exec, of a program with one thread. */
void secrets_leave_environment(void);

#endif
