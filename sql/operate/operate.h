/* The operations on scheduled messages of HTTP, the control queue and the command line. They are implemented
 * once, as SQL functions in sql/schema, which SQL users call, too.
 *
 * Each call is one transaction, committed synchronously if 0 is returned, even if nothing had to be changed:
 * an answer is as durable as the database's commits. Blocks on PostgreSQL; use it from the thread that owns
 * the connection. Locks and deadlocks are retried inside for about three seconds in all (locks not at all
 * after operate_hurry); then ERR_BUSY. ERR_AWAY: the connection was lost and the outcome is unknown;
 * repeating the call is safe, except that a delay of a reschedule starts again. */
#ifndef POSTDATE_SQL_OPERATE_OPERATE_H
#define POSTDATE_SQL_OPERATE_OPERATE_H

#include "core/base/arena.h"
#include "core/base/err.h"
#include "core/message/message.h"
#include "sql/connection/pg.h"
#include "sql/operate/lookup.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The delivery exchanges that the caller may access. Messages outside give the same answer as missing ones. A
 * NULL scope is everything; one with count 0 is nothing. The array must outlive the call. */
struct operate_scope {
    const struct bytes *exchanges;
    size_t count;
    bool all;        /* every exchange; the list is ignored */
    const char *who; /* recorded if a message is ended by an operator; NULL: the database's user */
};

/* From now on, operations on c wait only some ms for a lock, then fail with ERR_BUSY and pg_is_locked_out. */
int operate_hurry(struct pg *c, struct err *e);

enum operate_answer {
    OPERATE_DONE,       /* cancelled (also if it was cancelled before), rescheduled, retried */
    OPERATE_TOO_LATE,   /* claimed, handed over or delivered; for a reschedule also cancelled; expired, or
                           failed after its deadline */
    OPERATE_NOT_FOUND,  /* no such message, or outside the scope */
    OPERATE_NOT_FAILED, /* retry of a message that is not failed */
    OPERATE_KEY_TAKEN,  /* the key of a failed message belongs to another live message now */
    OPERATE_BUSY,       /* fail of a message that a gateway is publishing: repeat the call */
};

enum operate_kind {
    OPERATE_CANCEL,
    OPERATE_RESCHEDULE, /* the successor has a new id; all else is kept */
    OPERATE_RETRY,      /* a failed message is published again at once, with all attempts */
    OPERATE_FAIL, /* ends a live message as failed; if it may have been delivered, its error contains that.
                     For messages in doubt that cannot be delivered any more. DONE also if it was failed
                     before */
};
/* A new due time: at (ms since 1970), or a delay (ms, counted from the database's clock). A time in the past
 * means now. */
struct operate_due {
    bool is_delay;
    int64_t ms;
};
/* id: any id that the message ever had, before a reschedule or a replacement, too. */
struct operate_request {
    enum operate_kind kind;
    struct message_id id;
    struct operate_due due; /* RESCHEDULE */
};
struct operate_result {
    enum operate_answer answer;
    /* the message's current id, also with TOO_LATE or NOT_FAILED; the given id with NOT_FOUND */
    struct message_id id;
};
/* ERR_REJECT: the new due time is beyond delivery.max_delay, or after the message's deadline. */
int operate_message(struct pg *c, const struct operate_scope *scope, const struct operate_request *q,
                    struct operate_result *out, struct err *e);
/* Cancels the message with this key in a delivery exchange; NOT_FOUND: there is none. */
int operate_cancel_key(struct pg *c, const struct operate_scope *scope, struct bytes exchange,
                       struct bytes key, struct operate_result *out, struct err *e);

struct operate_bulk {
    enum operate_kind kind;
    /* a filter without conditions matches everything: let the user confirm */
    const struct lookup_filter *filter;
    int64_t shift_ms; /* RESCHEDULE: added to each due time, may be negative; times in the past become now */
    bool dry_run;     /* counts only: up to OPERATE_DRY_ROWS, for about OPERATE_DRY_MS */
    int64_t since_us; /* 0: begins now. Else when an earlier, unfinished call with the same arguments began
                         (µs since 1970): does only the rest of its work */
    /* Called after each chunk (may be NULL); false stops there. */
    bool (*progress)(void *ctx, int64_t matched, int64_t changed);
    void *ctx;
};
struct operate_count {
    int64_t matched; /* messages that match the filter, in a state to which the operation applies */
    int64_t changed; /* of these: changed. The others were claimed or locked meanwhile, or their key is taken,
                        or they would be due beyond max_delay or after their deadline */
    bool minimum;    /* a dry run that ended before it counted all */
    struct message_id first; /* of those that matched, if any */
};
/* In chunks of some hundred messages, each its own transaction: after an error, finished chunks stay
 * committed and are counted in `out`. Applies to waiting and failed messages (retry: failed ones; fail: those
 * in doubt that no gateway is publishing) that existed when it began. */
int operate_bulk(struct pg *c, const struct operate_scope *scope, const struct operate_bulk *b,
                 struct operate_count *out, struct err *e);

/* The message with its body, by any id that it ever had. ERR_NOT_FOUND. */
int operate_show(struct pg *c, const struct operate_scope *scope, struct message_id id, struct arena *a,
                 struct message_record *out, struct err *e);
/* The id of the message with this key. ERR_NOT_FOUND. */
int operate_find_key(struct pg *c, const struct operate_scope *scope, struct bytes exchange, struct bytes key,
                     struct message_id *out, struct err *e);
/* As lookup_list, within the scope. */
struct operate_list {
    const struct lookup_filter *filter;
    struct lookup_page *page; /* out: where it ended */
    bool (*each)(void *ctx, const struct message_record *r);
    void *ctx;
};
int operate_list(struct pg *c, const struct operate_scope *scope, const struct operate_list *l,
                 struct err *e);

#endif
