#include "gateway/publish/publish_window.h"

#define REST_MS 250    /* so long without a publish, and nothing in flight */
#define LEARN_MS 5000  /* so old, the quickest confirm says nothing any more: others use the broker, too */
#define LEARN_ROUNDS 3 /* until what was in flight before is confirmed, and what was sent since tells */
#define PACE_MS 10     /* beside the quickest, a confirm may take so much longer while the window grows */
#define LONG_MS 50     /* and from here on it shrinks */
#define PER_MS 64      /* no broker confirms more in a millisecond */
#define ENOUGH_LEAST 128

void publish_window_begin(struct publish_window *f, int least, int most)
{
    *f = (struct publish_window){
        .size = least, .least = least, .most = most, .quickest_ms = INT64_MAX, .round_ms = INT64_MAX};
}

void publish_window_shrink(struct publish_window *f)
{
    f->size = f->least;
    f->was_full = false;
}

bool publish_window_has_room(struct publish_window *f, int in_flight, int stalled)
{
    if (in_flight >= f->most)
        return false;
    if (in_flight - stalled < f->size)
        return true;
    f->was_full = true;
    return false;
}

/* With as much in flight as the broker takes without a queue of it. */
static void learn_anew(struct publish_window *f)
{
    int64_t quickest_ms = f->quickest_ms < f->most ? f->quickest_ms : f->most;
    int64_t alone = f->size * quickest_ms / (quickest_ms + PACE_MS) / 2;
    f->size = alone > f->least ? (int)alone : f->least;
    f->quickest_ms = f->round_ms = INT64_MAX;
    f->learning = LEARN_ROUNDS;
}

void publish_window_sent(struct publish_window *f, int in_flight, int64_t now_ms)
{
    if (in_flight == 0 && now_ms - f->sent_ms > REST_MS)
        publish_window_shrink(f);
    if (now_ms - f->learned_ms > LEARN_MS) {
        learn_anew(f);
        f->learned_ms = now_ms;
    }
    f->sent_ms = now_ms;
}

/* More than a broker can confirm in the quickest time only waits there. */
static int enough(const struct publish_window *f)
{
    int64_t n = f->quickest_ms < f->most / PER_MS ? f->quickest_ms * PER_MS : f->most;
    n = n < ENOUGH_LEAST ? ENOUGH_LEAST : n;
    return n < f->most ? (int)n : f->most;
}

static void end_round(struct publish_window *f)
{
    int64_t waited_ms = f->round_ms - f->quickest_ms;
    int most = enough(f);
    if (f->learning > 0)
        f->learning--;
    else if (f->was_full && waited_ms <= PACE_MS && f->size < most)
        f->size = f->size > most / 2 ? most : f->size * 2;
    else if (waited_ms > LONG_MS + f->quickest_ms)
        f->size = f->size / 2 < f->least ? f->least : f->size / 2;
}

void publish_window_confirmed(struct publish_window *f, uint64_t tag, uint64_t next_tag, int64_t took_ms)
{
    if (took_ms < f->quickest_ms)
        f->quickest_ms = took_ms;
    if (took_ms < f->round_ms)
        f->round_ms = took_ms;
    if (tag < f->round_ends_tag)
        return;
    end_round(f);
    f->round_ends_tag = next_tag;
    f->round_ms = INT64_MAX;
    f->was_full = false;
}
