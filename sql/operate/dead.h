/* Dead letters: messages that consumers rejected and that have no attempt left (table postdate.lineage).
 *
 * The caller's thread. Each is identified by its id and queue. A scope (sql/operate/operate.h) applies to the
 * exchange of the first delivery. */
#ifndef POSTDATE_SQL_OPERATE_DEAD_H
#define POSTDATE_SQL_OPERATE_DEAD_H

#include "core/base/arena.h"
#include "core/base/err.h"
#include "core/message/message_id.h"
#include "sql/connection/pg.h"
#include "sql/operate/operate.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The reasons of dead letters, for texts. */
#define DEAD_REASONS "rejected, delivery_limit, expired, maxlen, deadline, return_failed"
bool dead_is_reason(struct bytes name);

struct dead_filter {
    struct bytes queue; /* a pattern: '*' matches any run, "\*" a star; data NULL: any */
    struct bytes reason, exchange, routing_key; /* data NULL: any */
    const struct message_id *ids;               /* NULL: any */
    size_t id_count;
};

/* The dead letter after which a page begins. */
struct dead_position {
    int64_t died_us; /* since 1970 */
    struct message_id id;
    struct bytes queue; /* data NULL: at the first */
};

enum dead_state {
    DEAD_DEAD,
    DEAD_WAITING,  /* waits to return to its queue */
    DEAD_RETURNED, /* returned, and was not rejected since */
};

struct dead_attempt {
    int64_t at_ms;
    char reason[16];
};

struct dead_letter_record {
    struct message_id id;
    struct bytes queue, exchange, routing_key;
    char reason[16];
    int failed;         /* deliveries, since the start or the last requeue */
    int64_t died_us;    /* since 1970; -1: not dead */
    int64_t expires_ms; /* deleted then */
    int64_t body_size;
    /* dead_show only */
    enum dead_state state;
    int64_t next_ms; /* waiting: when; else -1 */
    bool has_message;
    struct message_id message;           /* the row that waits, or waited last */
    struct bytes error;                  /* why it could not return; len 0: none */
    struct bytes properties, body;       /* of a dead one */
    const struct dead_attempt *attempts; /* the last hundred, the first one first */
    size_t attempt_count;
};

struct dead_list {
    const struct dead_filter *filter;
    struct dead_position after;
    int64_t limit;
    bool (*each)(void *ctx, const struct dead_letter_record *r); /* valid during the call; false: stop */
    void *ctx;
};
/* In the order in which they died. */
int dead_list(struct pg *c, const struct operate_scope *scope, const struct dead_list *l, struct err *e);

struct dead_group {
    struct bytes queue, reason, exchange, routing_key;
    int64_t count, oldest_ms, newest_ms;
};
#define DEAD_GROUPS_MAX 1000
#define DEAD_LOOKED_MAX 100000 /* the last ones are counted */
struct dead_groups {
    const struct dead_group *groups; /* the largest first; in the arena */
    size_t count;
    bool complete; /* nothing was left out */
};
int dead_groups(struct pg *c, const struct operate_scope *scope, const struct dead_filter *f, struct arena *a,
                struct dead_groups *out, struct err *e);

struct dead_name {
    struct message_id id;
    struct bytes queue; /* data NULL: the only one, or the only one where it is dead */
};
/* Also finds a message that is waiting or returned, to show its attempts. ERR_NOT_FOUND; ERR_REJECT:
 * consumers of several queues rejected it; the text names the queues. */
int dead_show(struct pg *c, const struct operate_scope *scope, const struct dead_name *name, struct arena *a,
              struct dead_letter_record *out, struct err *e);

/* After ERR_NOT_FOUND for a message: if only its dead letters are known, adds their queues to the text of e.
 * False: it is unknown. */
bool dead_explain(struct pg *c, const struct operate_scope *scope, struct message_id id, struct err *e);

enum dead_kind { DEAD_REQUEUE, DEAD_DROP };
struct dead_bulk {
    enum dead_kind kind;
    const struct dead_filter *filter;
    int64_t interval_us; /* requeue: between two of them; 0: all at once */
    bool dry_run;
    int64_t since_us; /* 0: begins now; else as in struct operate_bulk */
    /* Called after each chunk (may be NULL); false stops there. */
    bool (*progress)(void *ctx, int64_t matched, int64_t changed);
    void *ctx;
};
/* In chunks of some hundred, a transaction each. Messages that become dead letters meanwhile are not touched.
 * ERR_REJECT: at that rate, returning would take longer than partitions exist. */
int dead_bulk(struct pg *c, const struct operate_scope *scope, const struct dead_bulk *b,
              struct operate_count *out, struct err *e);

#endif
