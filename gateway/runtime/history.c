#include "gateway/runtime/history.h"

#include "core/base/duration.h"
#include "core/base/timestamp.h"
#include "gateway/runtime/guard.h"
#include "gateway/runtime/log.h"

#include <string.h>

#define TIME_SIZE 40

void history_open(struct history *h)
{
    *h = (struct history){.lock = PTHREAD_MUTEX_INITIALIZER, .lost_number = -1};
}

void history_learn(struct history *h, const struct history_point *p)
{
    GUARD(&h->lock);
    if (p->number > h->point.number)
        h->point = *p;
}

static struct history_point latest(struct history *h)
{
    GUARD(&h->lock);
    return h->point;
}

/* Has it lost commits since the last report? If there was none, another gateway may have found it long ago.
 */
static bool note_report(struct history *h, const struct history_point *known, const struct history_report *r)
{
    GUARD(&h->lock);
    bool found_now = strcmp(known->lineage, r->point.lineage) == 0 && r->lost_number > known->number;
    bool back = h->lost_number < 0 ? found_now : r->lost_number > h->lost_number;
    if (r->lost_number > h->lost_number)
        h->lost_number = r->lost_number;
    if (r->point.number > h->point.number || strcmp(h->point.lineage, r->point.lineage) != 0)
        h->point = r->point;
    atomic_store(&h->look_until_ms, r->look_until_ms);
    atomic_store(&h->known, true);
    return back;
}

int history_look(struct history *h, struct pg *pg, int64_t window_ms, struct history_report *out,
                 struct err *e)
{
    const struct history_point known = latest(h);
    if (history_note(pg, &known, window_ms, out, e) != 0)
        return -1;
    bool back = note_report(h, &known, out);
    if (back) {
        char from[TIME_SIZE], to[TIME_SIZE], until[TIME_SIZE], span[TIME_SIZE], due[HISTORY_DUE_SIZE];
        log_warning(
            "the database went back: transactions committed between %s and %s (%s) are lost, as after a "
            "restore or the promotion of a standby that lagged. Messages accepted then are lost, except "
            "those that RabbitMQ holds; cancellations made then are undone; messages delivered then may be "
            "delivered again (%s). Messages that RabbitMQ releases are looked up first until %s "
            "(docs/operations.md, Restore)",
            timestamp_format(out->from_ms, from, sizeof from), timestamp_format(out->to_ms, to, sizeof to),
            duration_format_human(out->to_ms - out->from_ms, span, sizeof span),
            history_due_text(out->due, due), timestamp_format(out->look_until_ms, until, sizeof until));
    }
    return back;
}

bool history_newest(struct history *h, int64_t number, struct history_point *out)
{
    *out = latest(h);
    return out->number > number;
}
