/* What of a batch is refused goes to postdate.rejected. While that takes nothing, or does not answer, it is
 * deferred, and all others go on. */
#include "gateway/intake/intake.h"

#define WARN_EVERY_MS 60000 /* that postdate.rejected takes nothing */

/* Those confirmed are done, the others are offered again. */
static void keep_verdicts(struct intake *in, const struct rejected *list)
{
    size_t n = 0;
    for (size_t i = 0; i < in->count; i++) {
        struct intake_delivery *d = &in->deliveries[i];
        if (d->verdict != INTAKE_REFUSED)
            continue;
        bool done = list && list[n++].done;
        d->verdict = done ? INTAKE_DONE : INTAKE_DEFERRED;
        if (!done)
            d->key.len = 0;
    }
}

static size_t list_refused(struct intake *in, struct rejected *list)
{
    size_t n = 0;
    for (size_t i = 0; i < in->count; i++)
        if (in->deliveries[i].verdict == INTAKE_REFUSED) {
            if (list)
                list[n] =
                    (struct rejected){.input = in->deliveries[i].input, .reason = in->deliveries[i].reason};
            n++;
        }
    return n;
}

void intake_reject(struct intake *in)
{
    struct err e = {0};
    size_t refused = list_refused(in, NULL);
    if (refused == 0)
        return;
    int64_t now_ms = clock_monotonic_ms();
    char name[REJECTED_NAME_SIZE] = "";
    struct rejected *list = arena_alloc(&in->arena, refused * sizeof *list);
    int rc = -1;
    if (list) {
        list_refused(in, list);
        rejected_name(list[0].input.properties, name);
        rc = rejected_publish(in->runtime, &in->pace, list, refused, &e);
    } else
        err_set(&e, ERR_BUSY, "out of memory");
    keep_verdicts(in, list);
    if (rc == 0) {
        rejected_say_moved(&in->rejected, list, refused, "message");
    } else if (in->reject_warned_ms == 0 || now_ms - in->reject_warned_ms > WARN_EVERY_MS) {
        in->reject_warned_ms = now_ms;
        log_warning(
            "cannot move %zu refused message%s to postdate.rejected, trying again; the first (%s): %s",
            refused, refused == 1 ? "" : "s", name, e.text);
    }
}
