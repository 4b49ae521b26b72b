#include "gateway/runtime/locks.h"

#include "core/base/duration.h"
#include "core/base/timestamp.h"
#include "gateway/runtime/guard.h"
#include "gateway/runtime/log.h"
#include "sql/admin/partition.h"

#include <stdio.h>

#define LOOK_MS 1000

/* Once per lock, and not for locks of a moment. */
static void say(struct locks *l, int64_t now_ms)
{
    char name[PARTITION_NAME_SIZE], more[32] = " is", took[32];
    const struct locked_days *d = &l->days;
    if (d->count == 0 && !d->all) {
        if (log_turns(&l->said, false))
            log_info("no partition is locked any more, after %s",
                     duration_format_human(now_ms - l->since_ms, took, sizeof took));
        l->since_ms = 0;
        return;
    }
    if (l->since_ms == 0)
        l->since_ms = now_ms;
    if (!l->speaks || now_ms - l->since_ms < LOOK_MS || !log_turns(&l->said, true))
        return;
    if (d->all) {
        log_warning("postdate.message is locked by %s: all messages wait for the lock", d->who);
        return;
    }
    if (d->count > 1)
        snprintf(more, sizeof more, " and %d more are", d->count - 1);
    partition_name(&d->day[0], name);
    log_warning("partition postdate.%s%s locked by %s: messages due then wait for the lock; other days are "
                "not affected",
                name, more, d->who);
}

static int read_days(struct locks *l, struct pg *pg, struct err *e)
{
    int rc = locked_days_read(pg, &l->days, e);
    l->read_ms = clock_monotonic_ms();
    if (rc != 0)
        return -1;
    say(l, l->read_ms);
    if (l->speaks) {
        GUARD(&l->runtime->locked_lock);
        l->runtime->locked = l->days;
    }
    return 0;
}

int locks_look(struct locks *l, struct pg *pg, struct err *e)
{
    if (l->since_ms == 0 || clock_monotonic_ms() - l->read_ms < LOOK_MS)
        return 0;
    return read_days(l, pg, e);
}

bool locks_go_around(struct locks *l, struct pg *pg, struct due_range due, struct err *e)
{
    struct err e_read = {0};
    if (!pg_is_locked_out(pg))
        return false;
    if (read_days(l, pg, &e_read) != 0) {
        *e = e_read;
        return false;
    }
    bool any = l->days.all;
    for (int i = 0; i < l->days.count; i++)
        any = any || (l->days.day[i].from_ms < due.to_ms && l->days.day[i].to_ms > due.from_ms);
    if (any)
        err_clear(e);
    return any;
}

void locks_shown(struct runtime *rt, struct locked_days *out)
{
    GUARD(&rt->locked_lock);
    *out = rt->locked;
}

void locks_print(struct runtime *rt, struct buf *out)
{
    struct locked_days locked;
    char text[PARTITION_DATE_SIZE];
    locks_shown(rt, &locked);
    buf_put_str(out, locked.all ? "\"locked_days\":[\"message\"" : "\"locked_days\":[");
    for (int i = 0; i < locked.count; i++)
        buf_printf(out, "%s\"%s\"", i > 0 || locked.all ? "," : "", partition_date(&locked.day[i], text));
    buf_put_str(out, "]");
}
