/* Operations implemented by a SQL function of their noun, with answers in JSON: postdate.recur_ask, rate_ask,
 * token_ask, retry_policy_ask. This is the programs' interface to them. Blocks on PostgreSQL; the caller's
 * thread. */
#ifndef POSTDATE_SQL_OPERATE_ASK_H
#define POSTDATE_SQL_OPERATE_ASK_H

#include "core/base/arena.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include "sql/connection/pg.h"
#include "sql/operate/operate.h"
#include <stdbool.h>

enum ask_noun { ASK_RECUR, ASK_RATE, ASK_TOKEN, ASK_RETRY_POLICY };

struct ask_request {
    enum ask_noun noun;
    const char *operation;             /* the name that the function uses: "set" */
    bool reads;                        /* it changes nothing */
    struct bytes name;                 /* of the object; data NULL: none */
    struct bytes argument;             /* JSON; data NULL: none */
    const struct operate_scope *scope; /* NULL: all exchanges */
    const char *via;       /* the caller for whom the program acts, for the log of changes; never NULL */
    struct bytes versions; /* accepted versions of the object, separated by commas; "*": it must exist; data
                              NULL: no condition */
    bool fresh;            /* the object must not exist */
};

enum ask_outcome {
    ASK_DONE,
    ASK_MADE,     /* the object was created */
    ASK_UNMET,    /* the object has no such version: nothing was changed */
    ASK_EXISTS,   /* the object exists although fresh was set: nothing was changed */
    ASK_EXCHANGE, /* its exchange, old or new, is outside the scope: nothing was changed */
};

#define ASK_TAG_SIZE 256
struct ask_answer {
    enum ask_outcome outcome;
    struct bytes text;      /* JSON, in the arena; of DONE and MADE */
    char tag[ASK_TAG_SIZE]; /* the object's version; of a list, the last name, if more follow; else "" */
    char said[480];         /* for users: what was done, or why nothing was; "": the answer contains it */
};

/* ERR_NOT_FOUND; ERR_REJECT names the value and what is allowed. */
int ask_noun(struct pg *c, const struct ask_request *q, struct arena *a, struct ask_answer *out,
             struct err *e);

/* --- Tokens: names of callers with the delivery exchanges that they may use. The database keeps hashes only.
 * These are the gateways' queries; tokens are created and revoked by the function. */

#define TOKEN_EXCHANGES_MAX 100
#define TOKEN_ALL "*"     /* in place of exchanges: all of them */
#define TOKEN_NAME_MAX 64 /* bytes */

struct token_record {
    int64_t id;
    char name[TOKEN_NAME_MAX + 1];
    bool reads_only; /* no calls that change anything */
    struct bytes hash;
    struct pg_texts exchanges; /* 1 to TOKEN_EXCHANGES_MAX */
};
/* All live ones, in the order of their hashes, into *out (in the arena). Returns their number or -1. */
int token_list(struct pg *c, struct arena *a, struct token_record **out, struct err *e);

/* A number that changes whenever a token is created, changed or revoked. */
int token_version(struct pg *c, int64_t *out, struct err *e);
/* Records the time of their last use, to about a minute. */
int token_touch(struct pg *c, const int64_t *ids, size_t count, struct err *e);

#endif
