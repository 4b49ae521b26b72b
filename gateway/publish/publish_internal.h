/* What the files of this room share. Each uses those below it:
 *
 *   publisher.c           the thread: connect, publish what is due, read events, stop
 *   publish_fast.c, publish_alone.c, publish_handover.c   the roles
 *   publish_route.c       which publisher a message is for     publish_unconfirmed.c  what does not confirm
 *   publish_previous.c    connections that were held up
 *   publish_outcome.c     what the broker said
 *   publish_connection.c  the connection */
#ifndef POSTDATE_GATEWAY_PUBLISH_PUBLISH_INTERNAL_H
#define POSTDATE_GATEWAY_PUBLISH_PUBLISH_INTERNAL_H

#include "gateway/publish/publisher.h"

/* After so long an unconfirmed message's row is given back, as one in doubt; its confirm still counts. */
#define PUBLISHER_CONFIRM_MS 30000
#define PUBLISHER_AGAIN_MS 1000 /* what holds up a channel is tried again after that */
#define PUBLISHER_UNCONFIRMED                                                                                \
    "RabbitMQ has not confirmed it: the connection may be dead, or a queue without a majority of its nodes"

/* --- publish_connection.c */
/* A connection for publishing, or NULL. */
struct broker *publisher_dial(struct publisher *p, struct err *e);
/* On a new channel nothing is in flight. */
void publisher_begin_flight(struct publisher *p);
/* Drops the old connection, if there is one; nothing is in flight on the new one. */
void publisher_set_broker(struct publisher *p, struct broker *b);
/* The same, and the old connection is the caller's. */
struct broker *publisher_swap_broker(struct publisher *p, struct broker *b);
/* What b, the connection or a previous one, says next, without waiting; valid until the next call. -1: it is
 * gone. */
int publisher_next_event(struct publisher *p, struct broker *b, struct broker_event *ev, struct err *e);
/* Sends a ping. */
int publisher_ping(struct publisher *p, struct err *e);
/* For how long a ping has not been answered, where that is too long; else 0. */
int64_t publisher_silent_ms(const struct publisher *p, int64_t now_ms);

/* --- publish_outcome.c */
void publisher_on_event(struct publisher *p, const struct broker_event *ev);
/* An ack, nack or return for one of c, which is p->confirms or a previous connection's. Others are ignored.
 */
void publisher_on_answer(struct publisher *p, struct confirms *c, const struct broker_event *ev);
/* The broker took a delivery, or did not. */
void publisher_acked(struct publisher *p, struct inflight *h);
void publisher_nacked(struct publisher *p, struct inflight *h);
/* Does it say that a publish was the reason, which it certainly did not take? */
bool publisher_blames_a_publish(const struct err *e);
/* Their connection is given up: what is in c is in doubt, and published again; alone, where one of them may
 * have been the reason. Empties c. */
void publisher_doubt_all(struct publisher *p, struct confirms *c, const struct publisher_end *end);
/* The message was certainly not delivered: try again later, or fail. */
void publisher_refuse(struct publisher *p, struct inflight *h, const char *reason);
/* Where h goes is missing or forbidden, whatever its routing key. */
void publisher_note_refused(struct publisher *p, const struct inflight *h, const struct err *e);
/* Has the deadline passed of what is to be published next? Then it is to be refused, which ends it. */
bool publisher_is_expired(struct publisher *p, struct inflight *h);
#define PUBLISHER_TOO_LATE "the deadline passed before it was published"
/* h is not in flight any more; confirmed: the broker answered. */
void publisher_left(struct publisher *p, struct inflight *h, bool confirmed);
/* h's destination stands still: it waits in the database, until then (database ms). */
int64_t publisher_wait_until_ms(struct publisher *p, const struct inflight *h);
void publisher_wait(struct publisher *p, struct inflight *h);
/* h goes back, and not a byte was sent. If it was to try its destination, the next one is to. */
void publisher_note_lost_try(struct publisher *p, const struct inflight *h);

/* --- publish_previous.c; not for the hand-over publisher */
/* Not too often, and not where it is RabbitMQ that is slow, and no queue: there each connection would leave
 * more in doubt. */
bool publisher_may_change_over(struct publisher *p, int64_t now_ms);
/* Goes on with b. What is unconfirmed stays with the old connection, which is listened to. */
void publisher_change_over(struct publisher *p, struct broker *b);
/* Reads what the old connections say; ends those that have nothing to say any more. Called again and again;
 * look: also see whether their silence counts, which takes a while. */
void publisher_listen_to_previous(struct publisher *p, bool look);
/* How many are unconfirmed there. */
int publisher_left_behind(const struct publisher *p);
/* Ends them all: what is unconfirmed there is in doubt. */
void publisher_end_previous(struct publisher *p);

/* --- publish_unconfirmed.c */
/* h is among the confirms now. */
void publisher_sent(struct publisher *p, struct inflight *h);
/* Something came from the broker. */
void publisher_heard(struct publisher *p, const struct broker_event *ev);
/* Called again and again: looks at what is unconfirmed. False: the broker is blocked, and need not answer. */
bool publisher_check_unconfirmed(struct publisher *p, int64_t now_ms);
/* Is there room in the publish window, beside what is left on previous connections? */
bool publisher_window_has_room(struct publisher *p);
/* Then: changes over to another connection, or (-1) this one is of no use any more. */
int publisher_end_silence(struct publisher *p, int64_t now_ms, int64_t silent_ms, struct err *e);

/* --- publish_route.c */
/* False: h was not ours any more, and has been dealt with; or it was claimed, and too much is not settled: it
 * goes back to its queue. What was relayed does not, for it has proofs. */
bool publisher_keep_ours(struct publisher *p, struct inflight *h);
/* To a due queue; without memory for that it is released. */
void publisher_send_to(struct publisher *p, struct inflight *h, struct due_queue *to);
/* A role's route, for a delivery. */
bool publisher_route(struct publisher *p, struct inflight *h);
/* The publisher is to deal with h as v says. True: it publishes it itself. */
bool publisher_send_on(struct publisher *p, struct inflight *h, enum destination_verdict v);
/* Is it an answer to a requester that waits without a queue (direct reply-to)? */
bool publisher_is_reply(const struct message *m);
/* A role's compose, for a delivery. */
int publisher_compose(struct publisher *p, struct inflight *h, struct publish_to *to, struct err *e);

#endif
