#include "gateway/pipeline/flight_window.h"

#define REST_MS 250    /* so long without a new one, and nothing in flight */
#define LEARN_MS 5000  /* so old, the quickest answer says nothing any more: others use the server, too */
#define LEARN_ROUNDS 3 /* until what was in flight before is answered, and what was sent since tells */
#define ALWAYS 16      /* it grows up to this at any pace: small is to lose little, not to be slow */
#define PACE_MS 10     /* beside the quickest, an answer may take so much longer while the window grows */
#define LONG_MS 50     /* and from here on it shrinks */
#define PER_MS 32      /* for each of the quickest answer: more of it drained nothing faster */
#define GAIN 2         /* times what was answered in as short a time at best: so it can still grow */

void flight_window_begin(struct flight_window *window, int least, int enough, int most)
{
    *window = (struct flight_window){.size = least,
                                     .least = least,
                                     .enough = enough,
                                     .most = most,
                                     .quickest_ms = INT64_MAX,
                                     .round_ms = INT64_MAX};
}

void flight_window_shrink(struct flight_window *window)
{
    window->size = window->least;
    window->was_full = false;
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

/* With as much in flight as the broker takes without a queue of it. */
static void learn_anew(struct flight_window *window)
{
    int64_t quickest_ms = window->quickest_ms < window->most ? window->quickest_ms : window->most;
    int64_t alone = window->size * quickest_ms / (quickest_ms + PACE_MS) / 2;
    int least = window->size < ALWAYS ? window->size : ALWAYS;
    window->size = alone > least ? (int)alone : least;
    window->quickest_ms = window->round_ms = INT64_MAX;
    window->fits = 0;
    window->learning = LEARN_ROUNDS;
}

void flight_window_sent(struct flight_window *window, int in_flight, int64_t now_ms)
{
    if (in_flight == 0 && now_ms - window->sent_ms > REST_MS)
        flight_window_shrink(window);
    if (now_ms - window->learned_ms > LEARN_MS) {
        learn_anew(window);
        window->learned_ms = now_ms;
    }
    window->sent_ms = now_ms;
}

/* More than can be answered in the quickest time only waits there. */
static int useful_size(const struct flight_window *window)
{
    int64_t n = window->quickest_ms < window->most / PER_MS ? window->quickest_ms * PER_MS : window->most;
    n = n > GAIN * window->fits ? GAIN * window->fits : n;
    n = n < window->enough ? window->enough : n;
    return n < window->most ? (int)n : window->most;
}

/* took_ms: of its last answer. In that time so many were answered as in the round. */
static void end_round(struct flight_window *window, int64_t took_ms)
{
    int64_t waited_ms = window->round_ms - window->quickest_ms;
    int64_t fits = window->answered * (window->quickest_ms + 1) / (took_ms + 1);
    window->fits = fits > window->fits ? fits : window->fits;
    int most = useful_size(window);
    if (window->learning > 0)
        window->learning--;
    else if (window->was_full && (waited_ms <= PACE_MS || window->size < ALWAYS) && window->size < most)
        window->size = window->size > most / 2 ? most : window->size * 2;
    else if (waited_ms > LONG_MS + window->quickest_ms)
        window->size = window->size / 2 < window->least ? window->least : window->size / 2;
}

void flight_window_answered(struct flight_window *window, uint64_t tag, uint64_t next_tag, int64_t took_ms)
{
    if (took_ms < window->quickest_ms)
        window->quickest_ms = took_ms;
    if (took_ms < window->round_ms)
        window->round_ms = took_ms;
    window->answered++;
    if (tag < window->round_ends_tag)
        return;
    end_round(window, took_ms);
    window->answered = 0;
    window->round_ends_tag = next_tag;
    window->round_ms = INT64_MAX;
    window->was_full = false;
}
