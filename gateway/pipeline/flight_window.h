/* How many may wait for their answer at once: published ones for RabbitMQ's confirm, confirmed ones for the
 * settler.
 *
 * What waits when a connection or this gateway dies may arrive twice: as few as keep the other side busy. So
 * it begins small and grows, as TCP's window does: doubled after a round in which it was full. Beyond
 * `enough`, and beyond 16 while answers take longer than the quickest, the doubling must pay: more must be
 * answered in the same time, or it is taken back. Beyond twice `enough` answers must be quick as well. It is
 * halved when answers wait long. While something is overdue and even the quickest answer of a round takes
 * more than a millisecond, `wide` takes the place of `enough`. A round is as long as one answer takes. The
 * quickest is learnt anew every five seconds, with so little in flight that no queue of it is over there.
 * After a rest it is small, too, for what comes then is often what had piled up. Owned by one thread, or
 * guarded by its owner. */
#ifndef POSTDATE_GATEWAY_PIPELINE_FLIGHT_WINDOW_H
#define POSTDATE_GATEWAY_PIPELINE_FLIGHT_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

struct flight_window {
    int size, least, most;
    int enough; /* to grow beyond this must pay … */
    int wide;   /* … and while something is overdue, beyond this */
    bool overdue;
    int64_t quickest_ms; /* the quickest answer since learned_ms (monotonic) */
    int64_t learned_ms;
    int learning;     /* rounds until it is known; the window does not grow meanwhile */
    int before;       /* the size until then; where less was not enough, it goes on from half of it */
    int64_t round_ms; /* the quickest of this round */
    /* Where a doubling must pay: what this size is good for. */
    int rounds;              /* that it was full in; what is answered in the first was sent before */
    int64_t measured_ms;     /* monotonic: the end of that first one */
    int64_t answered;        /* since then */
    int64_t pace;            /* answers a second with half of it */
    bool grown;              /* no more until learned_ms: doubling it did not pay */
    int64_t moved_ms;        /* monotonic, when the last one was added or answered */
    uint64_t round_ends_tag; /* with the answer to this one */
    bool was_full;           /* in this round */
};

/* For a new connection. 1 <= least <= enough <= wide <= most, or least == most: a fixed size. */
void flight_window_begin(struct flight_window *window, int least, int enough, int wide, int most);
/* Has what the window keeps back been due for a while? Asked where there is no room. */
void flight_window_note_overdue(struct flight_window *window, bool overdue);
/* The other side stopped or goes on: small again. What is known of its pace stays. */
void flight_window_shrink(struct flight_window *window);
/* May one more be added, with in_flight without an answer, `stalled` of them for so long that their queue
 * must stand still? Those do not count but against `most`: one queue without its majority must not delay the
 * others. */
bool flight_window_has_room(struct flight_window *window, int in_flight, int stalled);
/* One was added at now_ms (monotonic), when in_flight others had no answer. */
void flight_window_sent(struct flight_window *window, int in_flight, int64_t now_ms);
/* The answer to `tag` came at now_ms (monotonic), after took_ms (>= 0); next_tag is what the next one will
 * have. */
void flight_window_answered(struct flight_window *window, uint64_t tag, uint64_t next_tag, int64_t took_ms,
                            int64_t now_ms);

#endif
