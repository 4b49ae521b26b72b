/* The limit of messages that wait for an answer at once: published ones for RabbitMQ's confirm, confirmed
 * ones for the settler.
 *
 * If a connection is lost or this gateway dies, messages in the window may be delivered twice, so it is only
 * as large as needed to keep the other side busy. It begins small and grows, as TCP's window does: it doubles
 * after a round in which it was full. Beyond `enough`, and beyond 16 while answers take longer than the
 * quickest, a doubling must increase the throughput, or it is undone. Beyond twice `enough` answers must be
 * quick as well. It is halved when answers wait long. While something is overdue and even the quickest answer
 * of a round takes more than a millisecond, `wide` takes the place of `enough`. A round is as long as one
 * answer takes. The quickest answer is measured again every five seconds, with so few messages in flight that
 * none of them queue at the other side. After a pause it is small, too, because a backlog often follows.
 * Owned by one thread, or guarded by its owner. */
#ifndef POSTDATE_GATEWAY_DELIVER_FLIGHT_WINDOW_H
#define POSTDATE_GATEWAY_DELIVER_FLIGHT_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

struct flight_window {
    int size, least, most;
    int enough; /* growing beyond this must increase the throughput … */
    int wide;   /* … and while messages are overdue, beyond this */
    bool overdue;
    int64_t quickest_ms; /* the quickest answer since learned_ms (monotonic) */
    int64_t learned_ms;
    int learning;     /* rounds until the quickest is known; the window does not grow meanwhile */
    int before;       /* the size before; if the small size was not enough, it continues from half of it */
    int64_t round_ms; /* the quickest of this round */
    /* The throughput of this size, where a doubling must increase it. */
    int rounds;          /* rounds in which it was full; answers in the first are for earlier messages */
    int64_t measured_ms; /* monotonic: the end of that first one */
    int64_t answered;    /* since then */
    int64_t pace;        /* answers per second with half of the size */
    bool grown;       /* does not grow until learned_ms: the last doubling did not increase the throughput */
    int64_t moved_ms; /* monotonic: the last message added or answered */
    uint64_t round_ends_tag; /* the round ends with the answer to this tag */
    bool was_full;           /* in this round */
};

/* For a new connection. 1 <= least <= enough <= wide <= most, or least == most: a fixed size. */
void flight_window_begin(struct flight_window *window, int least, int enough, int wide, int most);
/* Are messages that the window delays overdue? Call it while there is no room. */
void flight_window_note_overdue(struct flight_window *window, bool overdue);
/* After the other side stopped or continued: small again; the measured throughput is kept. */
void flight_window_shrink(struct flight_window *window);
/* May a message be added, while in_flight have no answer, `stalled` of them for so long that their queue must
 * hang? The stalled ones count against `most` only: a queue without a majority must not delay the others. */
bool flight_window_has_room(struct flight_window *window, int in_flight, int stalled);
/* A message was added at now_ms (monotonic), while in_flight others had no answer. */
void flight_window_sent(struct flight_window *window, int in_flight, int64_t now_ms);
/* `tag` was answered at now_ms (monotonic), after took_ms (>= 0); next_tag: of the next message. */
void flight_window_answered(struct flight_window *window, uint64_t tag, uint64_t next_tag, int64_t took_ms,
                            int64_t now_ms);

#endif
