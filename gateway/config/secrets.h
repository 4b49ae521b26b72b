/* Keeping passwords out of what others can read: memory images and other programs' environments. */
#ifndef POSTDATE_GATEWAY_CONFIG_SECRETS_H
#define POSTDATE_GATEWAY_CONFIG_SECRETS_H

#include <stdbool.h>

/* Whether a crash leaves a core file, and whether processes of the same user may look into this one
 * (debuggers, /proc/PID/environ, /proc/PID/mem); root always may. First of all in main, before a secret is
 * read: false. From any thread. */
void secrets_allow_dumps(bool allowed);

/* Takes what may hold a secret (POSTDATE_…, and libpq's PG…) out of the environment. Call it in a child,
 * before exec, of a program with one thread. */
void secrets_leave_environment(void);

#endif
