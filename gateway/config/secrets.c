#include "gateway/config/secrets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

void secrets_allow_dumps(bool allowed)
{
    /* It cannot fail with these values. A limit on the size of core files would not do: the kernel does not
     * look at it where core files go to a program (systemd-coredump). */
    prctl(PR_SET_DUMPABLE, allowed ? 1L : 0L, 0L, 0L, 0L);
}

static bool may_hold_secret(const char *entry)
{
    return strncmp(entry, "POSTDATE_", 9) == 0 || strncmp(entry, "PG", 2) == 0;
}

void secrets_leave_environment(void)
{
    char **keep = environ;
    for (char **v = environ; v != NULL && *v != NULL; v++)
        if (!may_hold_secret(*v))
            *keep++ = *v;
    if (keep != NULL)
        *keep = NULL;
}
