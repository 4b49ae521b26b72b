/* Connections that were held up, and what is unconfirmed there.
 *
 * A channel that says nothing for a moment is held up by one queue, or the machine is busy. Its publisher
 * goes on with another connection at once. What is unconfirmed on the old one is not published again at once:
 * if the channel was only slow, all of it is confirmed a moment later, and would arrive twice. The old
 * connection is listened to until it has said nothing for a while. */
#include "gateway/publish/publish_internal.h"
#include "gateway/runtime/log.h"

#define SILENT_MS 5000 /* it has said nothing for so long: what is unconfirmed there is in doubt */

/* Its unconfirmed messages stay with it; the destination cache counts them as publishes elsewhere. */
static void leave_messages(struct publisher *p, struct publisher_previous *previous)
{
    previous->confirms = p->confirms;
    for (struct inflight *h = previous->confirms.oldest, *next; h; h = next) {
        next = h->next;
        if (h->released) {
            if (p->role->alone)
                publisher_left(p, h, false);
            inflight_free(confirms_take(&previous->confirms, h->tag, false));
            continue;
        }
        if (!p->role->alone)
            destination_cache_tried(p->destinations, h->destination);
        h->unproven = false;
        h->left_behind = true;
    }
}

static void end_previous(struct publisher *p, struct publisher_previous *previous, const char *why)
{
    struct err e = {0};
    char name[INFLIGHT_NAME_SIZE];
    if (previous->confirms.count > 0)
        log_debug("%s: %d unconfirmed on a connection that was held up, the first %s: %s", p->role->name,
                  previous->confirms.count,
                  previous->confirms.oldest ? inflight_name(previous->confirms.oldest, name) : "none", why);
    err_set(&e, ERR_AWAY, "%s", why);
    publisher_doubt_all(p, &previous->confirms, &e);
    broker_abort(previous->broker);
    previous->broker = NULL;
}

static struct publisher_previous *find_free_place(struct publisher *p)
{
    struct publisher_previous *oldest = &p->previous[0];
    for (int i = 0; i < PUBLISHER_PREVIOUS_MOST; i++) {
        struct publisher_previous *previous = &p->previous[i];
        if (!previous->broker)
            return previous;
        if (previous->since_ms < oldest->since_ms)
            oldest = previous;
    }
    end_previous(p, oldest, "more were held up since");
    return oldest;
}

void publisher_change_over(struct publisher *p, struct broker *b)
{
    struct publisher_previous *previous = find_free_place(p);
    log_debug("%s: the channel is held up: changing over to another connection", p->role->name);
    leave_messages(p, previous);
    previous->since_ms = previous->heard_ms = clock_monotonic_ms();
    previous->broker = publisher_swap_broker(p, b);
    /* What is half sent will never be confirmed, and sending the rest may block. */
    if (broker_has_unsent(previous->broker))
        end_previous(p, previous, "the broker did not read");
}

/* False: it has ended. */
static bool read_previous(struct publisher *p, struct publisher_previous *previous)
{
    struct broker_event ev;
    struct err e = {0};
    do {
        if (publisher_next_event(p, previous->broker, &ev, &e) != 0) {
            end_previous(p, previous, e.text);
            return false;
        }
        if (ev.kind != BROKER_EVENT_NONE || p->blocked) /* a blocked broker answers nobody */
            previous->heard_ms = clock_monotonic_ms();
        publisher_on_answer(p, &previous->confirms, &ev);
    } while (ev.kind != BROKER_EVENT_NONE);
    return true;
}

bool publisher_has_previous(const struct publisher *p)
{
    for (int i = 0; i < PUBLISHER_PREVIOUS_MOST; i++)
        if (p->previous[i].broker)
            return true;
    return false;
}

void publisher_listen_to_previous(struct publisher *p)
{
    for (int i = 0; i < PUBLISHER_PREVIOUS_MOST; i++) {
        struct publisher_previous *previous = &p->previous[i];
        if (!previous->broker || !read_previous(p, previous))
            continue;
        if (previous->confirms.count == 0)
            end_previous(p, previous, "all is confirmed");
        else if (clock_monotonic_ms() - previous->heard_ms > SILENT_MS)
            end_previous(p, previous, "no answer");
    }
}

void publisher_end_previous(struct publisher *p)
{
    for (int i = 0; i < PUBLISHER_PREVIOUS_MOST; i++)
        if (p->previous[i].broker)
            end_previous(p, &p->previous[i], "the publisher stops");
}
