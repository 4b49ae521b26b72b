/* Work of many transactions that an Idempotency-Key names. */
#include "core/base/hash.h"
#include "gateway/api/api_internal.h"
#include "gateway/api/api_operation.h"

#include <string.h>

/* The keys are fixed: the hash distinguishes the requests of a caller, nothing rests on its secrecy. */
void api_once_hash(const struct api_request *r, uint8_t out[IDEMPOTENCY_HASH_SIZE])
{
    static const uint8_t keys[2][SIPHASH_KEY_SIZE] = {"postdate once 1", "postdate once 2"};
    for (int i = 0; i < 2; i++) {
        uint64_t h = siphash(keys[i], bytes_of_str(r->op->path));
        h = (h * 31 + siphash(keys[i], r->id)) * 31 + siphash(keys[i], r->body);
        memcpy(out + 8 * i, &h, 8);
    }
}

void api_once_replay(struct api_answer *a, const struct idempotency_request *q, enum idempotency_found found)
{
    if (found == IDEMPOTENCY_ANSWERED) {
        a->status = q->status;
        buf_reset(&a->body);
        buf_put_bytes(&a->body, q->answer);
    } else if (found == IDEMPOTENCY_OTHER) {
        api_fail(a, API_IDEMPOTENCY_MISMATCH,
                 "this Idempotency-Key was used for another request within the last day");
    } else {
        api_fail(a, API_IN_PROGRESS, "the first request with this Idempotency-Key has not been answered");
    }
}

/* Somebody else has it, or had it. */
static int replay_answer(struct api_context *c, struct api_request *r, struct idempotency_request *q,
                         struct err *e)
{
    int found = idempotency_find(c->pg, q, &c->arena, e);
    if (found == IDEMPOTENCY_ANSWERED && idempotency_confirm(c->pg, e) != 0)
        found = -1;
    if (found >= 0)
        api_once_replay(&r->answer, q, (enum idempotency_found)found);
    return found < 0 ? -1 : 0;
}

static int run_taken(struct api_context *c, struct api_request *r, struct api_once *once,
                     struct idempotency_request *q, struct err *e)
{
    struct idempotency_request *list[] = {q};
    struct err ignored = {0};
    once->since_us = q->begun_us;
    if (once->run(c, r, once, e) != 0 || r->answer.status >= 300) {
        /* Where something may have been done, the key stays: asked again, the rest is done. */
        if (q->begun_us == 0 && !once->touched)
            idempotency_forget(c->pg, q, &ignored);
        return r->answer.status >= 300 ? 0 : -1;
    }
    q->status = r->answer.status;
    q->answer = buf_bytes(&r->answer.body);
    idempotency_finish(c->pg, list, 1, &ignored); /* the changes are made; a repetition finds nothing to do */
    return 0;
}

/* Bulk changes are many transactions, so the key is taken in one of its own before them. When the gateway or
 * the database dies in the middle, a repetition does the rest, counting from when the first one began: what
 * that one moved was made since, and is left alone. */
static int run_once(struct api_context *c, struct api_request *r, struct api_once *once, struct err *e)
{
    struct idempotency_request q = {.principal = bytes_of_str(api_principal(r)), .key = r->idempotency_key};
    struct err ignored = {0};
    api_once_hash(r, q.body_hash);
    if (idempotency_take(c->pg, &q, e) != 0)
        return -1;
    if (!q.taken)
        return replay_answer(c, r, &q, e);
    int rc = run_taken(c, r, once, &q, e);
    idempotency_release(c->pg, &q, &ignored);
    return rc;
}

int api_once_run(struct api_context *c, struct api_request *r, struct api_once *once, struct err *e)
{
    return r->idempotency_key.len > 0 ? run_once(c, r, once, e) : once->run(c, r, once, e);
}
