/* Between the gateway/api/api*.c files. */
#ifndef POSTDATE_GATEWAY_API_API_INTERNAL_H
#define POSTDATE_GATEWAY_API_API_INTERNAL_H

#include "core/base/hash.h"
#include "gateway/api/api.h"
#include "gateway/json/json_memory.h"
#include "gateway/json/json_message_internal.h"
#include "sql/operate/dead.h"
#include "sql/operate/idempotency.h"

/* A new reference to an object (with the "json" of messages as gateway/json/json_document.h says), or NULL
 * and the answer is a problem: 400 for what is not JSON, 422 for JSON that is no object. */
json_t *api_parse_body(struct bytes body, struct api_answer *a);
/* Is it {}? False: answered. Over HTTP a body there must be: what has none, a browser sends to any address
 * for any page. */
bool api_body_is_empty(struct api_request *r);
/* The problem object of one message in a batch, or of a whole answer; NULL: out of memory. */
json_t *api_problem_object(enum api_problem p, const char *detail);
void api_dump(const json_t *value, struct api_answer *a);
/* The answer is the value, whose reference it takes; 503 where memory was missing since outer began. */
void api_answer_json(struct api_request *r, json_t *value, struct json_memory_scope outer);
/* Of what is neither a message nor made by one. 0: it was an error that the request is to blame for, and is
 * answered; else -1. */
int api_answer_err(struct api_request *r, const struct err *e);
/* {"removed":true} */
void api_answer_removed(struct api_request *r);

/* For the audit line. */
void api_count(struct api_answer *a, const struct operate_count *n);
/* The answer of an operation by filter. */
void api_bulk_answer(struct api_request *r, const struct operate_count *n, bool dry_run);

/* The value of a parameter; data NULL when it is not there. */
struct bytes api_param(const struct api_request *r, const char *name);
/* -1 (answered): a parameter that is not among the names (NULL-terminated), is given twice or is no text. */
int api_params_check(struct api_request *r, const char *const names[]);
/* False: there are parameters, and it is answered. */
bool api_takes_nothing(struct api_request *r);

/* What a filter may have, by name (NULL-terminated). */
extern const char *const api_filter_names[];
/* Reads a filter from those of the params that belong to it. -1: answered. Views into the params. */
int api_filter_read(const struct api_request *r, struct lookup_filter *out, struct api_answer *a);
/* The same from a JSON object; values (API_PARAMS_MAX) keeps what out points to. */
int api_filter_from_json(const json_t *filter, struct api_request *scratch, struct lookup_filter *out,
                         struct api_answer *a);

/* The parameters that a JSON object of strings gives into scratch->params, which may be of those names. -1:
 * answered. Views into the object. */
int api_filter_params(const json_t *filter, struct api_request *scratch, const char *const names[],
                      struct api_answer *a);
/* A parameter of at most MESSAGE_NAME_MAX bytes; data NULL: it is not there. -1: answered. */
int api_param_name(const struct api_request *r, const char *name, struct bytes *out, struct api_answer *a);

/* Cut short it ends with "...", so as not to become right by that. False: it is not there. */
#define API_PARAM_SIZE 64
bool api_param_text(const struct api_request *r, const char *name, char out[API_PARAM_SIZE]);
/* Where it is not there, out stays. -1: answered. */
int api_param_time(const struct api_request *r, const char *name, int64_t *out, struct api_answer *a);
/* The same of a number from 1. */
int api_param_number(struct api_request *r, const char *name, int64_t most, int64_t *out);

/* --- api_dead.c: filters of dead letters, from parameters of these names. -1: answered in a. */
extern const char *const api_dead_names[];
int api_dead_filter(const struct api_request *r, struct dead_filter *f, struct api_answer *a);

/* --- api_page.c: pages of a list. names: the parameters that a page token is bound to. A position is what
 * the list makes of it, of a length that leaves no rest by three. */
#define API_POSITION_MAX 282
struct api_pages {
    uint8_t version; /* of its positions; another one for each list */
    const char *const *names;
    size_t least, most; /* bytes of a position */
};
/* -1: answered */
int api_page_size(struct api_request *r, int64_t *out);
/* The length of the position; 0: it is the first page; -1: answered. */
int api_page_read(const struct api_context *c, struct api_request *r, const struct api_pages *pages,
                  uint8_t out[API_POSITION_MAX]);
void api_page_print(const struct api_context *c, const struct api_request *r, const struct api_pages *pages,
                    struct bytes position, struct buf *out);
/* The same as a new reference; out of memory as gateway/json/json_memory.h says. */
json_t *api_page_value(const struct api_context *c, const struct api_request *r,
                       const struct api_pages *pages, struct bytes position);

/* --- api_once.c: work of many transactions, done once where the request has an Idempotency-Key. The key is
 * taken in a transaction of its own before them. When the gateway or the database dies in the middle, a
 * repetition does the rest, counting from when the first one began. */
struct api_once {
    /* Makes the answer; -1: e, and no answer. */
    int (*run)(struct api_context *c, struct api_request *r, struct api_once *once, struct err *e);
    void *work;
    uint64_t number;  /* of the operation: stored hashes of requests have it */
    int64_t since_us; /* for run: when the first one began; 0: now */
    bool touched;     /* of run: it failed when something was, or may have been, changed */
};
/* The keys are fixed: the hash distinguishes the bodies of a caller, nothing rests on its secrecy. */
void api_once_hash(struct bytes body, const uint8_t keys[2][SIPHASH_KEY_SIZE], uint64_t number,
                   uint8_t out[IDEMPOTENCY_HASH_SIZE]);
/* The key is known: answers as the first time, or refuses. */
void api_once_replay(struct api_answer *a, const struct idempotency_request *q, enum idempotency_found found);
int api_once_run(struct api_context *c, struct api_request *r, struct api_once *once, struct err *e);

/* May this message be scheduled? -1: no, and text says why. */
int api_scope_admits(const struct api_scope *s, const struct accept_rules *rules, const struct message *m,
                     char *text, size_t size);
/* Everything, whatever exchange? */
bool api_scope_is_all(const struct api_scope *s);
/* NULL: everything. */
const struct operate_scope *api_operate_scope(const struct api_request *r);

/* --- report/: what is about everything. False: the scope has not all exchanges, and the answer is made. */
bool api_sees_all(struct api_request *r);

/* What the rows of api_operation_list.h run. */
typedef int api_operation_run(struct api_context *c, struct api_request *r, struct err *e);
api_operation_run api_run_show, api_run_cancel, api_run_reschedule, api_run_retry, api_run_fail, api_list,
    api_bulk, api_dead_list, api_dead_groups, api_dead_show, api_dead_bulk, api_policy_list, api_policy_match,
    api_policy_show, api_policy_set, api_forecast, api_slo, api_whoami, api_policy_remove, api_recur_list,
    api_recur_show, api_recur_set, api_recur_remove, api_recur_pause, api_recur_resume, api_recur_run,
    api_recur_history, api_recur_preview, api_rate_list, api_rate_match, api_rate_show, api_rate_set,
    api_rate_remove, api_rate_pause, api_rate_resume;

#endif
