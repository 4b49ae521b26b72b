#include "gateway/runtime/failing.h"

#include "core/base/clock.h"
#include "core/base/duration.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/server_status.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define AGAIN_MS 60000 /* between two lines */
#define MOST 32        /* more than any thread has to do */

struct failing {
    const char *what; /* NULL: a free place */
    unsigned times;   /* that it failed, since it last worked */
    unsigned unsaid;  /* of these, since the last line */
    bool said;
    int64_t since_ms, last_ms, said_ms; /* monotonic: the first and the last of them, the last line */
};

static _Thread_local struct failing list[MOST];
static _Thread_local unsigned count;

/* what NULL: a free place, or that of the one that failed longest ago. */
static struct failing *find(const char *what)
{
    struct failing *oldest = &list[0];
    for (struct failing *f = list; f < list + MOST; f++) {
        if (f->what == what || (f->what && what && strcmp(f->what, what) == 0))
            return f;
        oldest = f->last_ms < oldest->last_ms ? f : oldest;
    }
    return what ? NULL : oldest;
}

static struct failing *note(const char *what, int64_t now_ms)
{
    struct failing *f = find(what);
    if (!f) {
        f = find(NULL);
        count += f->what == NULL;
        *f = (struct failing){.what = what, .since_ms = now_ms};
    }
    f->times++;
    f->unsaid++;
    f->last_ms = now_ms;
    return f;
}

static void say(struct failing *f, const struct err *e, bool now)
{
    char text[32];
    if (!f->said && now)
        log_warning("%s: %s; trying again until it works", f->what, e->text);
    else if (f->said && f->last_ms - f->said_ms >= AGAIN_MS)
        log_warning("%s: failed %u more times, for %s now: %s", f->what, f->unsaid,
                    duration_format_human(f->last_ms - f->since_ms, text, sizeof text), e->text);
    else {
        log_debug("%s: %s", f->what, e->text);
        return;
    }
    f->said = true;
    f->said_ms = f->last_ms;
    f->unsaid = 0;
}

void failing_note(const char *what, const struct err *e)
{
    if (e->kind == ERR_STOPPING)
        return;
    if (e->kind == ERR_AWAY && server_status_any_away()) {
        log_debug("%s: %s", what, e->text);
        return;
    }
    struct failing *f = note(what, clock_monotonic_ms());
    bool lasts = f->times >= FAILING_TIMES && f->last_ms - f->since_ms >= FAILING_MS;
    say(f, e, lasts || (!err_is_transient(e) && e->kind != ERR_NOT_FOUND));
}

void failing_note_seldom(const char *what, const struct err *e)
{
    if (e->kind != ERR_STOPPING)
        say(note(what, clock_monotonic_ms()), e, true);
}

void failing_over(const char *what)
{
    char text[32];
    struct failing *f = count > 0 ? find(what) : NULL;
    if (!f || clock_monotonic_ms() - f->last_ms < FAILING_QUIET_MS)
        return;
    if (f->said)
        log_info("%s: it works again, after %u failure%s in %s", f->what, f->times, f->times == 1 ? "" : "s",
                 duration_format_human(f->last_ms - f->since_ms, text, sizeof text));
    *f = (struct failing){0};
    count--;
}

void failing_tell(const char *what, const struct err *e)
{
    if (e->kind == ERR_NONE)
        failing_over(what);
    else
        failing_note(what, e);
}
