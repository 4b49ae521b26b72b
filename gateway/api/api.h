/* The operations of Postdate as JSON request -> status and JSON answer, whatever they came by: HTTP, and what
 * else speaks JSON. Nothing here knows of sockets.
 *
 * An answer of 400 and above is a problem object (RFC 9457) with a stable `type`. */
#ifndef POSTDATE_GATEWAY_API_API_H
#define POSTDATE_GATEWAY_API_API_H

#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/random.h"
#include "core/message/accept.h"
#include "core/message/message_id.h"
#include "sql/connection/pg.h"
#include "sql/operate/operate.h"
#include "sql/operate/slo.h"
#include "sql/pipeline/store.h"
#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define API_BATCH_MAX 1000 /* messages in one request */
#define API_PARAMS_MAX 16
#define API_ANSWER_MAX ((size_t)64 * 1024 * 1024)

enum api_problem {
    API_OK,
    API_INVALID_JSON,
    API_INVALID_REQUEST,
    API_INVALID_MESSAGE,
    API_UNAUTHORIZED,
    API_EXCHANGE_NOT_ALLOWED,
    API_ROLE_NOT_ALLOWED,
    API_NOT_FOUND,
    API_NO_SUCH_ROUTE,
    API_METHOD_NOT_ALLOWED,
    API_TOO_LATE,
    API_KEY_TAKEN,
    API_BUSY,
    API_IN_PROGRESS,
    API_PRECONDITION_FAILED,
    API_REQUEST_TIMEOUT,
    API_TOO_LARGE,
    API_TARGET_TOO_LONG,
    API_HEAD_TOO_LARGE,
    API_UNSUPPORTED_MEDIA_TYPE,
    API_IDEMPOTENCY_MISMATCH,
    API_KEY_LOCKED,
    API_DAY_LOCKED,
    API_OVERLOADED,
    API_DATABASE_AWAY,
    API_UNKNOWN_OUTCOME,
    API_NOT_READY,
    API_INTERNAL,
    API_PROBLEM_COUNT,
};

/* Whose request it is, and which delivery exchanges exist for them. A pointer to one may be NULL: everything.
 */
struct api_scope {
    const char *principal; /* who, for what is kept per caller; never NULL */
    const char *name;      /* what people call it */
    bool reads_only;
    struct operate_scope exchanges;
};

struct api_params {
    struct api_param {
        struct bytes name, value;
    } list[API_PARAMS_MAX];
    size_t count;
};

struct api_answer {
    int status;
    enum api_problem problem; /* what api_fail said last; API_OK: it was not called */
    int retry_after_s;        /* 0: none */
    bool counted;             /* by what does its work on many: */
    int64_t matched, changed;
    bool explained;       /* it was not found, but something is known of it */
    bool replaces;        /* what had the key before may have been superseded */
    int made;             /* stored */
    struct message_id id; /* of the first that was made, or matched; of the one that it is about */
    char tag[64];         /* ETag, without its quotes; "": none */
    char said[480];       /* what was done, for people; "": the body says it */
    struct buf body;
};

struct api_operation;

/* All views must stay valid until done. */
struct api_request {
    const struct api_operation *op; /* api_operation.h */
    const struct api_scope *scope;
    const char *from; /* where it came from, for the log */
    uint64_t caller;  /* api_caller(), once it is known */
    struct bytes id;  /* as the caller wrote it; len 0: none */
    struct api_params params;
    struct bytes body;
    struct bytes idempotency_key;         /* len 0: none */
    struct bytes if_match, if_none_match; /* as the caller wrote them; data NULL: not given */
    struct api_answer answer;

    /* For the executor (gateway/api/executor.h). */
    void (*done)(struct api_request *r); /* the answer is there; called by a thread of the executor */
    struct api_request *next;
    uint64_t turn;     /* of its caller, in a queue */
    uint64_t names[2]; /* hashes of what it must have for itself: a key, an Idempotency-Key; 0: none */
    bool alone;        /* a batch with keys: no other keys beside it */

    /* Where it met somebody's lock (gateway/api/executor_park.h). */
    uint64_t held;                             /* which of its names; 0: another one */
    struct api_request *behind;                /* those that ask for the same */
    int64_t retry_at_ms, give_up_ms, pause_ms; /* monotonic; 0: not retried yet */
};

void api_answer_open(struct api_answer *a);
void api_answer_close(struct api_answer *a);

/* "urn:postdate:problem:too-late" and the like. */
const char *api_problem_type(enum api_problem p);
/* Makes the answer a problem. The detail is for people. */
void api_fail(struct api_answer *a, enum api_problem p, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same from an error before which nothing was changed: what waiting can cure is 503. */
void api_fail_err(struct api_answer *a, const struct err *e);
/* Something may have been changed, and nobody knows: 503. whose: "the database", "the database of cell
 * north". */
void api_fail_unclear(struct api_request *r, const char *whose);
/* Is it unknown what an operation did that failed so? */
bool api_is_unclear(const struct api_request *r, const struct err *e);

/* "" for who may do everything. */
const char *api_principal(const struct api_request *r);
/* A hash of who has a share of what callers share, never 0: the token, or without one the address. */
uint64_t api_caller(const struct api_request *r);
/* True when the scope has this delivery exchange. */
bool api_scope_has(const struct api_scope *s, struct bytes exchange);

/* What operations run with. One thread's. */
struct api_context {
    struct pg *pg;
    struct arena arena; /* of one request */
    json_t *body;       /* its body, an object; NULL: it has none */
    json_t *value;      /* out: the answer, where the operation leaves it to api_run; status 200 */
    struct accept_rules rules;
    uint8_t secret[16]; /* signs page tokens */
    int64_t now_ms;     /* database clock */
    int64_t lead_ms;
    struct slo_objective objective;
    const atomic_bool *ending; /* operations by filter end between two chunks once it is set */
    bool wake;                 /* out: something is due soon: the claimer should look */
    bool idle;                 /* out: nothing was changed, though it might have been */
    bool done;                 /* out: what was asked for is committed; repeating it is something else */
};

/* api_operation.c: does what a worker does (`run` in the table) and makes the answer. -1: the database failed
 * (e is transient); the answer is not made. */
int api_run(struct api_context *c, struct api_request *r, struct err *e);
/* The parameters are those that the operation takes, and the token suffices for it. False: answered. */
bool api_admits(struct api_request *r);
/* When the message that the answer is about (its id) was settled, in ms since 1970; 0: it is gone; -1: it
 * lives. -1 (return): as api_run. */
int api_message_settled(struct api_context *c, const struct api_request *r, int64_t *out_ms, struct err *e);

#endif
