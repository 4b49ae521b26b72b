/* How many publishes may wait for their confirm at once.
 *
 * A connection that dies puts all of them in doubt, and each may then arrive twice: as few as keep the broker
 * busy. So it begins small and grows, as TCP's window does, while the broker keeps pace: doubled after a
 * round in which the window was full and confirms took hardly longer than the quickest, up to what a broker
 * can confirm in that time; halved when they wait long in the broker. A round is as long as one confirm
 * takes. The quickest is learnt anew every five seconds, with so little in flight that no queue of it is in
 * the broker. After a rest it is small, too, for what comes then is often what had piled up. Owned by one
 * thread.
 */
#ifndef POSTDATE_GATEWAY_PUBLISH_PUBLISH_WINDOW_H
#define POSTDATE_GATEWAY_PUBLISH_PUBLISH_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

struct publish_window {
    int size, least, most;
    int64_t quickest_ms; /* the quickest confirm since learned_ms (monotonic) */
    int64_t learned_ms;
    int learning;            /* rounds until it is known; the window does not grow meanwhile */
    int64_t round_ms;        /* the quickest of this round */
    int64_t sent_ms;         /* monotonic, of the last publish */
    uint64_t round_ends_tag; /* with the confirm of this one */
    bool was_full;           /* in this round */
};

/* For a new connection. 1 <= least <= most. least == most: a fixed size. */
void publish_window_begin(struct publish_window *window, int least, int most);
/* The broker stopped or goes on: small again. What is known of its pace stays. */
void publish_window_shrink(struct publish_window *window);
/* May one more be published, with in_flight unconfirmed, `stalled` of them for so long that their queue must
 * stand still? Those do not count but against `most`: one queue without its majority must not delay the
 * others. */
bool publish_window_has_room(struct publish_window *window, int in_flight, int stalled);
/* One was published at now_ms (monotonic), when in_flight others were unconfirmed. */
void publish_window_sent(struct publish_window *window, int in_flight, int64_t now_ms);
/* A confirm of `tag` came took_ms (>= 0) after its publish; next_tag is what the next publish will have. */
void publish_window_confirmed(struct publish_window *window, uint64_t tag, uint64_t next_tag,
                              int64_t took_ms);

#endif
