/* What a receipt is worth when RabbitMQ dies.
 *
 * The broker routes what it lets go to the target queue and, as a receipt, to the receipt queue, with no
 * confirm in between. The receipt is read, and settles the row, at once. A classic queue writes what nobody
 * wants confirmed when it was idle for 200 ms or has gathered some 32,000 changes: a broker that is
 * killed loses what lies in it unread since then, and the receipt says that it arrived. So when the broker
 * started anew without having been shut down, the receipts of the last `handover.grace` are not believed:
 * the messages that they settled then, and those whose receipts were still unread, are published again, with
 * a confirm. Most will arrive twice; none is lost. A proper stop leaves a smaller doubt: what was let go in
 * the second before it. And after either, what fell due until shortly after the start, if it found its way
 * then (amqp/transport_exit.c): a starting broker lets go at once, and quorum queues that have no leader yet
 * drop what they are given.
 *
 * The ids are remembered in memory, RECEIPT_DOUBT_IDS of them. What another gateway settled, one that died at
 * the same time or was started since and knows of no death, is found in the database. Owned and used by the
 * receipts' thread. */
#ifndef POSTDATE_GATEWAY_RECEIPT_DOUBT_H
#define POSTDATE_GATEWAY_RECEIPT_DOUBT_H

#include "core/recent.h"
#include "gateway/daemon/gateway.h"
#include "gateway/daemon/restart_mark.h"
#include "sql/pg.h"

#define RECEIPT_DOUBT_IDS 200000 /* 20,000 receipts a second for ten seconds */

struct receipt_doubt {
    struct gateway *gateway;
    struct restart_mark mark;
    struct recent settled;      /* by receipt; monotonic ms */
    struct message_id *pending; /* settled by a receipt that is not believed, still to be written down */
    size_t pending_count;
    int64_t pending_ms;             /* monotonic; when writing them down was tried last */
    int64_t empty_ms;               /* monotonic; there was nothing to read then */
    int64_t heard_ms;               /* monotonic; when the broker was alive for certain */
    int64_t lost_ms;                /* monotonic; when the end of that connection was seen; 0: it was not */
    bool shut_down;                 /* the broker said so then */
    bool refused;                   /* there can't be a mark */
    bool comes_back;                /* what finds no way is read */
    int64_t place_ms, look_ms;      /* monotonic; the last tries */
    int64_t decided_ms;             /* monotonic; the last time there was a doubt; 0: never */
    int64_t from_due_ms, to_due_ms; /* receipts for these, read from now on, are not believed, … */
    int64_t since_ms;               /* … nor what anybody settled by them since then; database time */
    int64_t others_ms;              /* monotonic; the last look for what others settled */
    size_t doubted;                 /* not said yet */
};

/* -1: out of memory. Free with receipt_doubt_close, also then. */
int receipt_doubt_open(struct receipt_doubt *d, struct gateway *g);
/* b: to remove the mark, or NULL. */
void receipt_doubt_close(struct receipt_doubt *d, struct broker *b);

/* At at_ms (monotonic) there was nothing to read. */
void receipt_doubt_empty(struct receipt_doubt *d, int64_t at_ms);
/* The broker sent something, after that; how long after, nobody knows: a gateway that was paused reads what a
 * broker sent that is long dead. */
void receipt_doubt_heard(struct receipt_doubt *d);
/* A receipt settled this one. */
void receipt_doubt_settled(struct receipt_doubt *d, struct message_id id);
/* The connection b is over, whoever ended it. */
void receipt_doubt_lost(struct receipt_doubt *d, const struct broker *b);
/* There is a new connection b, nothing was read from it yet: did the broker start anew? comes_back: what
 * found no way then is read here (unrouted.h). lag_ms: how late it let go lately. -1: ask again with another
 * connection. */
int receipt_doubt_connected(struct receipt_doubt *d, struct broker *b, bool comes_back, int64_t lag_ms,
                            struct err *e);
/* Now and then, while connected: keeps the mark, writes down what is in doubt. -1: as above. */
int receipt_doubt_pulse(struct receipt_doubt *d, struct broker *b, struct pg *pg, int64_t lag_ms,
                        struct err *e);

/* Is the receipt of this one, read now, not to be believed? */
bool receipt_doubt_applies(const struct receipt_doubt *d, struct message_id id);
/* Instead of settling those, at most 2,000. locked[i]: try again later. -1: nothing is written. */
int receipt_doubt_read(struct receipt_doubt *d, struct pg *pg, const struct message_id *ids, size_t count,
                       bool *locked, struct err *e);
/* Nothing more to read for now: says what came of it, once most of it must have been read. */
void receipt_doubt_tell(struct receipt_doubt *d);

#endif
