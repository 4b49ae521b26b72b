/* What does not confirm.
 *
 * A publisher that has heard nothing for a moment pings its channel. When the answer comes and the confirm
 * does not, the message's destination stands still, and nothing else does. When not even the answer comes,
 * the channel is held up, or the whole broker is: the publisher then opens a second connection, and changes
 * over to it if the first one has still said nothing (publish_previous.c). What follows for a destination
 * that was among the first of what was in flight goes through the patient publisher then, which finds out,
 * alone with each destination, which of them it was, and waits with that. */
#include "gateway/publish/publish_internal.h"

#include <poll.h>

#define OVERTAKEN_MS                                                                                         \
    50 /* an unconfirmed publish as old as that, when later ones are confirmed: its queue is slow */
#define OVERDUE_MS 20  /* what waits for room is late by more: a larger window is worth it */
#define STALLED_MS 500 /* and without that */
#define LOOK_EVERY_MS 50
#define KEPT_MS 1000 /* unconfirmed for so long, it may not take more memory than this: */
#define KEPT_BYTES_MAX (3u * 1024 * 1024)
#define GHOST_MS 120000 /* a confirm that has not come by then is lost */
#define GHOSTS_MAX 1000

void publisher_sent(struct publisher *p, struct inflight *h)
{
    if (p->unheard_ms == 0)
        p->unheard_ms = h->published_ms;
    if (p->role->alone)
        destination_cache_tried(p->destinations, h->destination);
}

void publisher_heard(struct publisher *p, const struct broker_event *ev)
{
    p->heard_ms = clock_monotonic_ms();
    atomic_store(&p->pipeline->answered_ms, p->heard_ms);
    p->unheard_ms = 0;
    p->answered = true;
    if (ev->kind != BROKER_EVENT_PONG)
        return;
    p->pinging = false;
    p->answered_tag = p->ping_tag;
    if (p->role->on_pong)
        p->role->on_pong(p);
}

/* Its row is given back, so that it can be seen and ended; what is left of it tells when its confirm comes.
 */
static void release_row(struct publisher *p, struct inflight *h)
{
    struct inflight *row = confirms_leave_ghost(&p->confirms, h);
    if (!row)
        return;
    row->in_doubt = true;
    inflight_set_error(row, INFLIGHT_UNCONFIRMED, PUBLISHER_UNCONFIRMED);
    row->next_at_ms = publisher_wait_until_ms(p, row);
    pipeline_settle(p->pipeline, row, SETTLE_IN_DOUBT);
}

static void forget_ghost(struct publisher *p, struct inflight *ghost)
{
    publisher_left(p, ghost, false);
    inflight_free(confirms_take(&p->confirms, ghost->tag, false));
}

/* At what is unconfirmed for long. */
static void check_old(struct publisher *p, int64_t now_ms)
{
    size_t kept = 0;
    for (struct inflight *h = p->confirms.oldest, *next; h; h = next) {
        int64_t age_ms = now_ms - h->published_ms;
        if (age_ms <= DESTINATION_STALLED_MS)
            break;
        next = h->next;
        if (h->released && (age_ms > GHOST_MS || p->confirms.ghosts > GHOSTS_MAX)) {
            forget_ghost(p, h);
            continue;
        }
        if (p->role->on_lagging)
            p->role->on_lagging(p, h, now_ms);
        if (h->released || age_ms < KEPT_MS)
            continue;
        kept += h->size;
        if ((age_ms > PUBLISHER_CONFIRM_MS || kept > KEPT_BYTES_MAX) && !p->pinging)
            release_row(p, h);
    }
}

/* Another connection, once that one is held up and not the whole broker. NULL: not now. */
static struct broker *dial_another(struct publisher *p, int64_t now_ms)
{
    struct err e = {0};
    struct pollfd old = {.fd = broker_fd(p->broker), .events = POLLIN};
    if (!publisher_may_change_over(p, now_ms))
        return NULL;
    struct broker *b = publisher_dial(p, &e);
    p->switched_ms = clock_monotonic_ms();
    /* That took as long as the whole broker stood still. What it says now is read next. */
    if (b && poll(&old, 1, 0) == 0)
        return b;
    broker_drop(b);
    return NULL;
}

bool publisher_check_unconfirmed(struct publisher *p, int64_t now_ms)
{
    bool look = now_ms - p->looked_ms >= LOOK_EVERY_MS;
    if (look)
        p->looked_ms = now_ms;
    publisher_listen_to_previous(p, look);
    if (p->blocked) {
        p->pinged_ms = now_ms; /* a blocked broker does not answer, and says so */
        return false;
    }
    if (look)
        check_old(p, now_ms);
    return true;
}

int publisher_end_silence(struct publisher *p, int64_t now_ms, int64_t silent_ms, struct err *e)
{
    if (silent_ms > PUBLISHER_CONFIRM_MS)
        return err_set(e, ERR_AWAY, "no answer within %d s", PUBLISHER_CONFIRM_MS / 1000);
    struct broker *b = dial_another(p, now_ms);
    if (!b)
        return 0;
    p->role->on_held_up(p, clock_monotonic_ms());
    publisher_change_over(p, b);
    return 0;
}

/* Has the first that waits for room been due for a while? */
static bool is_overdue(struct publisher *p)
{
    int64_t now_ms, next_ms = due_queue_next_ms(p->queue, DUE_ALL);
    return runtime_now_ms(p->runtime, &now_ms) && next_ms < now_ms - OVERDUE_MS;
}

bool publisher_window_has_room(struct publisher *p)
{
    int left = publisher_left_behind(p);
    if (flight_window_has_room(&p->window, p->confirms.count + left, p->stalled + left))
        return true;
    flight_window_note_overdue(&p->window, is_overdue(p));
    p->stalled = confirms_lagging(&p->confirms, clock_monotonic_ms(), OVERTAKEN_MS, STALLED_MS);
    return flight_window_has_room(&p->window, p->confirms.count + left, p->stalled + left);
}
