/* Operations that a SQL function of their noun does, and answers in JSON: postdate.recur_ask, rate_ask,
 * token_ask, retry_policy_ask. Here is how the programs ask it. Blocks on Postgres; the caller's thread. */
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
    const char *operation;             /* as the function calls it: "set" */
    bool reads;                        /* it changes nothing */
    struct bytes name;                 /* what it is about; data NULL: none */
    struct bytes argument;             /* JSON; data NULL: none */
    const struct operate_scope *scope; /* NULL: all exchanges */
    const char *via;                   /* whom the program acts for; never NULL */
    struct bytes versions;             /* one of which it must have, separated by commas; "*": any; data NULL:
                                          no matter */
    bool fresh;                        /* there must be none of this name */
};

enum ask_outcome {
    ASK_DONE,
    ASK_MADE,     /* it is new */
    ASK_UNMET,    /* versions: nothing was done */
    ASK_EXISTS,   /* fresh: nothing was done */
    ASK_EXCHANGE, /* it is of, or is to be for, an exchange beyond the scope: nothing was done */
};

#define ASK_TAG_SIZE 256
struct ask_answer {
    enum ask_outcome outcome;
    struct bytes text;      /* JSON, in the arena; of DONE and MADE */
    char tag[ASK_TAG_SIZE]; /* its version; of a list the last name, if more follow; else "" */
    char said[480];         /* what was done, or why nothing was, for people; "": the answer says it */
};

/* ERR_NOT_FOUND; ERR_REJECT names the value and what is allowed. */
int ask_noun(struct pg *c, const struct ask_request *q, struct arena *a, struct ask_answer *out,
             struct err *e);

/* --- Tokens: names of callers with the delivery exchanges that they may use. The database keeps hashes only.
 * Here is what gateways keep of them; they are made and revoked by the function. */

#define TOKEN_EXCHANGES_MAX 100
#define TOKEN_ALL "*"     /* in place of exchanges: all of them */
#define TOKEN_NAME_MAX 64 /* bytes */

struct token_record {
    int64_t id;
    char name[TOKEN_NAME_MAX + 1];
    bool reads_only; /* it may make no calls that change something */
    struct bytes hash;
    struct pg_texts exchanges; /* 1 to TOKEN_EXCHANGES_MAX */
};
/* All live ones, in the order of their hashes, into *out (in the arena). Returns their number or -1. */
int token_list(struct pg *c, struct arena *a, struct token_record **out, struct err *e);

/* A number that is another one whenever tokens were created, changed or revoked. */
int token_version(struct pg *c, int64_t *out, struct err *e);
/* Notes that they are in use, to about a minute. */
int token_touch(struct pg *c, const int64_t *ids, size_t count, struct err *e);

#endif
