/* The operations on scheduled messages, as every way in offers them: HTTP, the control queue, the command
 * line. What they do is written once, as SQL functions in sql/schema, which SQL users call too.
 *
 * Each call is one transaction of its own, committed synchronously when 0 is returned, also where it found
 * all as it was to be: an answer is as safe as the database's commits are. Blocks on Postgres;
 * use it from the thread that owns the connection. A lock or a deadlock in the way is waited for and tried
 * again inside, for about three seconds in all (a lock not at all after operate_hurry); after that ERR_BUSY.
 * ERR_AWAY: the connection was lost and the outcome is unknown; asking again is safe, except that a
 * reschedule by a delay counts afresh. */
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

/* The delivery exchanges that the caller may touch. What lies outside answers exactly like what does not
 * exist. A NULL scope is everything; one with count 0 is nothing. The array must outlive the call. */
struct operate_scope {
    const struct bytes *exchanges;
    size_t count;
    bool all;        /* every exchange, whatever is listed */
    const char *who; /* for the record, where a message is ended by hand; NULL: the database's user */
};

/* From now on nothing on c waits for a lock longer than some ms: ERR_BUSY then, at once, and
 * pg_is_locked_out. */
int operate_hurry(struct pg *c, struct err *e);

enum operate_answer {
    OPERATE_DONE,       /* cancelled (also when it was before), rescheduled, retried */
    OPERATE_TOO_LATE,   /* claimed, handed over or delivered; for a reschedule also cancelled; expired, or
                           failed and   past its deadline */
    OPERATE_NOT_FOUND,  /* no such message, or outside the scope */
    OPERATE_NOT_FAILED, /* retry of what did not fail */
    OPERATE_KEY_TAKEN,  /* a failed message's key names another live message by now */
    OPERATE_BUSY,       /* fail of what a gateway is publishing now: ask again */
};

enum operate_kind {
    OPERATE_CANCEL,
    OPERATE_RESCHEDULE, /* the successor has a new id, all else moves along */
    OPERATE_RETRY,      /* a failed message is tried again at once, with all attempts afresh */
    OPERATE_FAIL,       /* ends a live message: it is failed, and its error says that it may have been
                           delivered where that is so. For what is in doubt and cannot be delivered any more.
                           DONE also when it had failed before */
};
/* A new due time: at (ms since 1970), or a delay (ms, counted from the database's clock). What lies in the
 * past is due now. */
struct operate_due {
    bool is_delay;
    int64_t ms;
};
/* id is any id that the message ever had: ids from before a reschedule or a replace lead to the current one.
 */
struct operate_request {
    enum operate_kind kind;
    struct message_id id;
    struct operate_due due; /* RESCHEDULE */
};
struct operate_result {
    enum operate_answer answer;
    struct message_id id; /* which the message has now, also where the answer is TOO_LATE or NOT_FAILED; the
                             given one where it is NOT_FOUND */
};
/* ERR_REJECT: the new due time is beyond delivery.max_delay, or after the message's deadline. */
int operate_message(struct pg *c, const struct operate_scope *scope, const struct operate_request *q,
                    struct operate_result *out, struct err *e);
/* Cancels the message that the key names in a delivery exchange; NOT_FOUND when it names none. */
int operate_cancel_key(struct pg *c, const struct operate_scope *scope, struct bytes exchange,
                       struct bytes key, struct operate_result *out, struct err *e);

struct operate_bulk {
    enum operate_kind kind;
    const struct lookup_filter *filter; /* a filter without any condition is everything: ask twice */
    int64_t shift_ms; /* RESCHEDULE: added to each due time, may be negative; what falls into the past is due
                         now */
    bool dry_run;     /* counts only: up to OPERATE_DRY_ROWS, for about OPERATE_DRY_MS */
    int64_t since_us; /* 0: begins now. When an earlier call with the same order began (µs since 1970), which
                         did not end: does the rest of it, and nothing twice */
    /* Called after each chunk (may be NULL); false stops there. */
    bool (*progress)(void *ctx, int64_t matched, int64_t changed);
    void *ctx;
};
struct operate_count {
    int64_t matched; /* fit the filter, and were in a state that the operation applies to */
    int64_t changed; /* of these: done. The others were claimed or locked meanwhile, or their key is taken, or
                        they would be due beyond max_delay, or after their deadline */
    bool minimum;    /* a dry run that ended before it had counted all */
    struct message_id first; /* of those that matched, where there are any */
};
/* In chunks of some hundred messages, each its own transaction: on an error what was done before stays done
 * and is in `out`. Applies to waiting and failed messages (retry: failed ones; fail: those in doubt
 * that nobody is publishing) that existed when it began. */
int operate_bulk(struct pg *c, const struct operate_scope *scope, const struct operate_bulk *b,
                 struct operate_count *out, struct err *e);

/* The message as it is now, by any id that it ever had, with its body. ERR_NOT_FOUND. */
int operate_show(struct pg *c, const struct operate_scope *scope, struct message_id id, struct arena *a,
                 struct message_record *out, struct err *e);
/* The id that a key names. ERR_NOT_FOUND. */
int operate_find_key(struct pg *c, const struct operate_scope *scope, struct bytes exchange, struct bytes key,
                     struct message_id *out, struct err *e);
/* As lookup_list, within the scope. */
struct operate_list {
    const struct lookup_filter *filter;
    struct lookup_page *page; /* afterwards: where it ended */
    bool (*each)(void *ctx, const struct message_record *r);
    void *ctx;
};
int operate_list(struct pg *c, const struct operate_scope *scope, const struct operate_list *l,
                 struct err *e);

#endif
