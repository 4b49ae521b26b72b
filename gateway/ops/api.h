/* The operations of Postdate: from a JSON request to a status and a JSON answer, for HTTP, the control queue
 * and the command line. Independent of sockets.
 *
 * An answer of 400 and above is a problem object (RFC 9457) with a stable `type`. */
#ifndef POSTDATE_GATEWAY_OPS_API_H
#define POSTDATE_GATEWAY_OPS_API_H

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

/* The caller of a request, and the delivery exchanges that exist for it. A NULL pointer means everything. */
struct api_scope {
    const char *principal; /* the caller's identity, for data kept per caller; never NULL */
    const char *name;      /* for users */
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
    enum api_problem problem; /* of the last api_fail; API_OK: not called */
    int retry_after_s;        /* 0: none */
    bool counted;             /* of operations on many messages: */
    int64_t matched, changed;
    bool explained;       /* not found, but the detail explains why */
    bool replaces;        /* the previous message of the key may have been superseded */
    int made;             /* stored */
    struct message_id id; /* of the first stored or matched message, or of the message of the request */
    char tag[64];         /* ETag, without its quotes; "": none */
    char said[480];       /* for users: what was done; "": the body contains it */
    struct buf body;
};

struct api_operation;

/* All views must stay valid until done is called. */
struct api_request {
    const struct api_operation *op; /* api_operation.h */
    const struct api_scope *scope;
    const char *from; /* the client's address, for the log */
    bool by_control;  /* came over the control queue */
    uint64_t caller;  /* api_caller(), once it is known */
    struct bytes id;  /* as received; len 0: none */
    struct api_params params;
    struct bytes body;
    struct bytes idempotency_key;         /* len 0: none */
    struct bytes if_match, if_none_match; /* as received; data NULL: not given */
    struct api_answer answer;

    /* For the executor (gateway/ops/executor.h). */
    void (*done)(struct api_request *r); /* called when the answer is complete, by a thread of the executor */
    struct api_request *next;
    uint64_t turn;     /* of its caller, in a queue */
    uint64_t names[2]; /* hashes of names that no other request may use meanwhile: a key, an Idempotency-Key;
                          0: none */
    bool alone;        /* a batch with keys: no other request with keys at the same time */

    /* After it met a lock (gateway/ops/executor_park.h). */
    uint64_t held;                             /* the locked name, of names; 0: another lock */
    struct api_request *behind;                /* requests that wait for the same */
    int64_t retry_at_ms, give_up_ms, pause_ms; /* monotonic; 0: not retried yet */
};

void api_answer_open(struct api_answer *a);
void api_answer_close(struct api_answer *a);

/* "urn:postdate:problem:too-late" and the like. */
const char *api_problem_type(enum api_problem p);
/* Makes the answer a problem. The detail is for users. */
void api_fail(struct api_answer *a, enum api_problem p, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same from an error before which nothing was changed; transient errors are 503. */
void api_fail_err(struct api_answer *a, const struct err *e);
/* The outcome is unknown: 503. whose: "the database", "the database of cell north". */
void api_fail_unclear(struct api_request *r, const char *whose);
/* Is the outcome of an operation unknown after this error? */
bool api_is_unclear(const struct api_request *r, const struct err *e);

/* "": the caller may do everything. */
const char *api_principal(const struct api_request *r);
/* The caller's number for shared resources (core/base/share.h), never 0: of the token, or without one of the
 * address. */
uint64_t api_caller(const struct api_request *r);
/* Is this delivery exchange in the scope? */
bool api_scope_has(const struct api_scope *s, struct bytes exchange);

/* The context of an operation. One thread's. */
struct api_context {
    struct pg *pg;
    struct arena arena; /* of one request */
    json_t *body;       /* its body, an object; NULL: it has none */
    json_t *value;      /* out: the answer, if api_run is to print it; status 200 */
    struct accept_rules rules;
    uint8_t secret[16]; /* signs page tokens */
    int64_t now_ms;     /* database clock */
    int64_t lead_ms;
    struct slo_objective objective;
    const atomic_bool *ending; /* when set, operations by filter end after their current chunk */
    bool wake;                 /* out: a message is due soon: notify the claimer */
    bool idle;                 /* out: nothing was changed, although the operation can change something */
    bool done;                 /* out: the change is committed; a repetition would be a second change */
};

/* api_operation.c: runs the operation (`run` in the table) and makes the answer. -1: the database failed (e
 * is transient); the answer is not made. */
int api_run(struct api_context *c, struct api_request *r, struct err *e);
/* Are the parameters those of the operation, and does the token permit it? False: the answer is made. */
bool api_admits(struct api_request *r);
/* When the message of the answer (its id) was settled, in ms since 1970; 0: it was deleted; -1: it is live.
 * -1 (return): as api_run. */
int api_message_settled(struct api_context *c, const struct api_request *r, int64_t *out_ms, struct err *e);

#endif
