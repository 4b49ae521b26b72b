/* Who a token belongs to, for the ways in that ask for one (http.tokens = on).
 *
 * All live tokens' hashes are kept in memory, so that asking costs no query and an unknown token nothing but
 * a hash. A thread of their own reads them again when the database says that they changed: at once, and in
 * any case within half a second. When it cannot ask for five seconds, nobody is let in. */
#ifndef POSTDATE_GATEWAY_OPS_TOKENS_H
#define POSTDATE_GATEWAY_OPS_TOKENS_H

#include "gateway/ops/api.h"
#include "gateway/runtime/runtime.h"

struct tokens;

/* Starts its thread. NULL: out of memory or threads. */
struct tokens *tokens_open(struct runtime *rt, struct err *e);
/* When nobody asks any more and all grants were released. NULL is fine. */
void tokens_close(struct tokens *t);

/* What a token allows; valid until it is released, also when the token is revoked meanwhile. */
struct tokens_page;
struct tokens_grant {
    struct tokens_page *page; /* NULL: nothing to release */
    const struct api_scope *scope;
};

/* Any thread. 0: out is filled; -1: the answer is made (401, or 503 while nobody knows). Who passes no tokens
 * (NULL) is allowed everything. */
int tokens_admit(struct tokens *t, struct bytes token, struct tokens_grant *out, struct api_answer *a);
void tokens_release(struct tokens_grant *grant); /* any thread; twice is once */

#endif
