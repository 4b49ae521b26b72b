/* Dry runs are bounded: who asks wants to know what a change will touch, and whether it is many. */
#include "core/base/clock.h"
#include "sql/operate/operate_internal.h"

#include <stdio.h>

void operate_dry_begin(struct operate_dry *d)
{
    *d = (struct operate_dry){.until_ms = clock_monotonic_ms() + OPERATE_DRY_MS};
}

int operate_dry_limit(struct operate_dry *d, struct pg *c, struct err *e)
{
    char text[60];
    int64_t left_ms = d->until_ms - clock_monotonic_ms();
    snprintf(text, sizeof text, "set statement_timeout = %lld", (long long)(left_ms > 0 ? left_ms : 1));
    return pg_exec(c, text, e);
}

int operate_dry_end(struct operate_dry *d, struct pg *c, bool failed, struct err *e)
{
    bool timed_out = failed && e->kind == ERR_BUSY && !pg_is_locked_out(c);
    if (!pg_is_broken(c) && pg_exec(c, "reset statement_timeout", failed ? NULL : e) != 0)
        return -1;
    d->spent = clock_monotonic_ms() >= d->until_ms;
    if (!failed)
        return 0;
    if (!timed_out || !d->spent)
        return -1;
    err_clear(e); /* one statement would have taken longer than there was */
    return 0;
}
