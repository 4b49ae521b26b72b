#include "gateway/deliver/flight_window.h"

#define REST_MS 250   /* so long nothing was in flight */
#define LEARN_MS 5000 /* so old, the quickest answer says nothing any more: others use the server, too */
#define LEARN_ROUNDS                                                                                         \
    3                 /* until messages in flight before are answered, and those sent since show the result */
#define ALWAYS 16     /* it grows up to this at any pace: small is to lose little, not to be slow */
#define PACE_MS 10    /* beside the quickest, an answer may take so much longer while the window grows */
#define LONG_MS 50    /* and from here on it shrinks */
#define MEASURE_MS 50 /* the least time to measure the throughput of a size */
#define CROWDED 2     /* times `enough`: beyond, it grows while answers are quick only */
#define QUICK_MS                                                                                             \
    1 /* answers within this: the server is not busy, and a larger window would not help overdue messages */
#define PAYS 115 /* percent: so much of what half the size answered is worth doubling it */

void flight_window_begin(struct flight_window *window, int least, int enough, int wide, int most)
{
    *window = (struct flight_window){.size = least,
                                     .least = least,
                                     .enough = enough,
                                     .wide = wide,
                                     .most = most,
                                     .quickest_ms = INT64_MAX,
                                     .round_ms = INT64_MAX};
}

static void set_size(struct flight_window *window, int size)
{
    window->size = size > window->most ? window->most : size < window->least ? window->least : size;
    window->rounds = 0;
    window->pace = 0;
}

void flight_window_shrink(struct flight_window *window)
{
    set_size(window, window->least);
    window->was_full = false;
}

void flight_window_note_overdue(struct flight_window *window, bool overdue)
{
    window->overdue = overdue;
}

bool flight_window_has_room(struct flight_window *window, int in_flight, int stalled)
{
    if (in_flight >= window->most)
        return false;
    if (in_flight - stalled < window->size)
        return true;
    window->was_full = true;
    return false;
}

void flight_window_sent(struct flight_window *window, int in_flight, int64_t now_ms)
{
    if (in_flight == 0 && now_ms - window->moved_ms > REST_MS)
        flight_window_shrink(window);
    if (now_ms - window->learned_ms > LEARN_MS) {
        /* With as many messages in flight as RabbitMQ processes without queueing them. */
        int64_t quickest_ms = window->quickest_ms < window->most ? window->quickest_ms : window->most;
        int64_t alone = window->size * quickest_ms / (quickest_ms + PACE_MS) / 2;
        int least = window->size < ALWAYS ? window->size : ALWAYS;
        window->before = window->size;
        set_size(window, alone > least ? (int)alone : least);
        window->quickest_ms = window->round_ms = INT64_MAX;
        window->grown = false;
        window->learning = LEARN_ROUNDS;
        window->learned_ms = now_ms;
    }
    window->moved_ms = now_ms;
}

/* Do answers take more than twice as long as the quickest? By Little's law: in flight = pace * time. Then the
 * server has a queue of its own, and that it answers more than before says little: it may just have begun. */
static bool is_crowded(const struct flight_window *window, int64_t pace)
{
    int64_t quickest_ms = window->quickest_ms > 1 ? window->quickest_ms : 1;
    return window->size >= CROWDED * window->enough && window->size * 1000 > 2 * quickest_ms * pace;
}

/* Full, and `enough` or late: doubles, and goes back if that did not pay. */
static void weigh(struct flight_window *window, int64_t now_ms)
{
    if (window->rounds++ == 0) {
        window->measured_ms = now_ms;
        window->answered = 0;
    }
    int64_t took_ms = now_ms - window->measured_ms;
    if (window->grown || took_ms < MEASURE_MS)
        return;
    int64_t pace = window->answered * 1000 / took_ms;
    bool paid = pace * 100 >= window->pace * PAYS;
    window->grown = !paid || is_crowded(window, pace);
    if (!paid)
        set_size(window, window->size / 2);
    else if (!window->grown) {
        set_size(window, window->size * 2);
        window->pace = pace;
    }
}

static void end_round(struct flight_window *window, int64_t now_ms)
{
    int64_t waited_ms = window->round_ms - window->quickest_ms;
    bool late = waited_ms > PACE_MS;
    int enough = window->overdue && window->round_ms > QUICK_MS ? window->wide : window->enough;
    if (window->learning > 0) {
        if (--window->learning == 0 && window->was_full && window->size < window->before / 2)
            set_size(window, window->before / 2);
    } else if (waited_ms > LONG_MS + window->quickest_ms)
        set_size(window, window->size / 2);
    else if (!window->was_full)
        window->rounds = 0;
    else if (window->size >= enough || (late && window->size >= ALWAYS))
        weigh(window, now_ms);
    else
        set_size(window, window->size * 2 < enough ? window->size * 2 : enough);
}

void flight_window_answered(struct flight_window *window, uint64_t tag, uint64_t next_tag, int64_t took_ms,
                            int64_t now_ms)
{
    if (took_ms < window->quickest_ms)
        window->quickest_ms = took_ms;
    if (took_ms < window->round_ms)
        window->round_ms = took_ms;
    window->answered++;
    window->moved_ms = now_ms;
    if (tag < window->round_ends_tag)
        return;
    end_round(window, now_ms);
    window->round_ends_tag = next_tag;
    window->round_ms = INT64_MAX;
    window->was_full = false;
}
