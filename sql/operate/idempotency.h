/* Requests that were answered before: the answers to Idempotency-Key, kept for a day. */
#ifndef POSTDATE_SQL_OPERATE_IDEMPOTENCY_H
#define POSTDATE_SQL_OPERATE_IDEMPOTENCY_H

#include "core/base/arena.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include "sql/connection/pg.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IDEMPOTENCY_HASH_SIZE 16

enum idempotency_found {
    IDEMPOTENCY_NEW,       /* never seen, or not committed */
    IDEMPOTENCY_ANSWERED,  /* status and answer are filled */
    IDEMPOTENCY_OTHER,     /* the key was used for another body */
    IDEMPOTENCY_UNFINISHED /* somebody works on it */
};

struct idempotency_request {
    struct bytes principal, key; /* text; whose key it is ("" without tokens), and the key */
    uint8_t body_hash[IDEMPOTENCY_HASH_SIZE];
    enum idempotency_found found; /* out of find */
    int status;                   /* into finish, out of find: what was answered, and the body */
    struct bytes answer;
    bool taken; /* out of take: this session answers it */
    /* out of take: since 1970, by the database, when somebody began it who is gone; 0: new */
    int64_t begun_us;
};

/* What is known of them; answers are copied into the arena. */
int idempotency_find(struct pg *c, struct idempotency_request *const *list, size_t count, struct arena *a,
                     struct err *e);
/* After find outside a transaction, before that answer is given once more: makes it as safe as its work was
 * to be. */
int idempotency_confirm(struct pg *c, struct err *e);

/* Writes the answers of requests that are new, inside the transaction that does what they ask for, or that
 * take gave to this session. ERR_BUSY: one of the keys has an answer by now; roll back, and look again. No
 * two requests may have the same principal and key. */
int idempotency_finish(struct pg *c, struct idempotency_request *const *list, size_t count, struct err *e);
/* The same inside a transaction, of any number; waits for nobody else's: ERR_BUSY, and pg_is_locked_out,
 * which is false if a key has an answer by now. */
int idempotency_finish_at_once(struct pg *c, struct idempotency_request *const *list, size_t count,
                               struct err *e);

/* For work of many transactions, in one of its own before them; waits as the session does, then ERR_BUSY.
 * taken: until idempotency_release, or its end, this session is the only one that works on the request.
 * Not taken: another one does, or find has the answer. */
int idempotency_take(struct pg *c, struct idempotency_request *r, struct err *e);
/* After take, however it ended: what has no answer may be taken by others. */
int idempotency_release(struct pg *c, const struct idempotency_request *r, struct err *e);

/* After take: gives a key free that was not answered. */
int idempotency_forget(struct pg *c, const struct idempotency_request *r, struct err *e);

/* 16 random bytes that belong to this schema, for signing. */
int idempotency_secret(struct pg *c, uint8_t out[16], struct err *e);

#endif
