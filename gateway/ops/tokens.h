/* Checks tokens, for the interfaces that require one (http.tokens = on).
 *
 * The hashes of all live tokens are in memory, so that a check needs no query, and an unknown token costs
 * only a hash. A separate thread reads them again when they change: at once, and in any case within half a
 * second. If it cannot query for five seconds, all tokens are rejected. */
#ifndef POSTDATE_GATEWAY_OPS_TOKENS_H
#define POSTDATE_GATEWAY_OPS_TOKENS_H

#include "gateway/ops/api.h"
#include "gateway/runtime/runtime.h"

struct tokens;

/* Starts its thread. NULL: out of memory or threads. */
struct tokens *tokens_open(struct runtime *rt, struct err *e);
/* After the last check, when all grants are released. NULL is fine. */
void tokens_close(struct tokens *t);

/* The rights of a token; valid until released, even if the token is revoked meanwhile. */
struct tokens_page;
struct tokens_grant {
    struct tokens_page *page; /* NULL: nothing to release */
    const struct api_scope *scope;
};

/* Any thread. 0: out is filled; -1: the answer is made (401, or 503 while tokens are unknown). Without tokens
 * (NULL) everything is allowed. */
int tokens_admit(struct tokens *t, struct bytes token, struct tokens_grant *out, struct api_answer *a);
void tokens_release(struct tokens_grant *grant); /* any thread; may be called twice */

#endif
