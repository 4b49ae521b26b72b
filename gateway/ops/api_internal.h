/* Between the gateway/ops/api*.c files. */
#ifndef POSTDATE_GATEWAY_OPS_API_INTERNAL_H
#define POSTDATE_GATEWAY_OPS_API_INTERNAL_H

#include "gateway/json/json_memory.h"
#include "gateway/json/json_message.h"
#include "gateway/ops/api.h"
#include "sql/operate/dead.h"
#include "sql/operate/idempotency.h"

/* A new reference to an object (with the "json" of messages as gateway/json/json_document.h says), or NULL
 * and the answer is a problem: 400 if it is not JSON, 422 if it is not an object. */
json_t *api_parse_body(struct bytes body, struct api_answer *a);
/* The problem object of one message in a batch, or of a whole answer; NULL: out of memory. */
json_t *api_problem_object(enum api_problem p, const char *detail);
void api_dump(const json_t *value, struct api_answer *a);

/* --- api_param.c: a wrong parameter is ERR_REJECT */

/* The value of a parameter; data NULL when it is not there. */
struct bytes api_param(const struct api_params *p, const char *name);
/* ERR_REJECT: a parameter is not in names (separated by blanks), is given twice or is not text. */
int api_params_check(const struct api_params *p, const char *names, struct err *e);
/* The members of a JSON object, a filter, as parameters of those names. Views into the object. */
int api_params_of(const json_t *filter, struct api_params *out, const char *names, struct err *e);
/* At most MESSAGE_NAME_MAX bytes; data NULL: not given. */
int api_param_name(const struct api_params *p, const char *name, struct bytes *out, struct err *e);
/* A longer value is cut and ends with "...", so that it does not become valid. False: not given. */
#define API_PARAM_SIZE 64
bool api_param_text(const struct api_params *p, const char *name, char out[API_PARAM_SIZE]);
/* If it is not given, *out is unchanged. */
int api_param_time(const struct api_params *p, const char *name, int64_t *out, struct err *e);
/* The same for a number from 1 to most. */
int api_param_number(const struct api_params *p, const char *name, int64_t most, int64_t *out, struct err *e);
/* The parameters of filters of messages, and of dead letters (api_dead.c). Views into the params. */
#define API_FILTER "key state exchange routing_key due_after due_before"
#define API_DEAD_FILTER "queue reason exchange routing_key"
int api_filter_read(const struct api_params *p, struct lookup_filter *out, struct err *e);
int api_dead_filter(const struct api_params *p, struct dead_filter *out, struct err *e);

/* --- api_param.c: pages of a list */

/* The position after which a page begins. */
struct api_position {
    int64_t at; /* ms or µs; from 0 on */
    struct message_id id;
    struct bytes name; /* without NUL */
};
int api_page_size(const struct api_request *r, int64_t *out, struct err *e);
/* 1: out is filled, in c->arena; 0: the first page is requested. */
int api_page_read(struct api_context *c, const struct api_request *r, struct api_position *out,
                  struct err *e);
/* Appends the page_token. */
void api_page_print(const struct api_context *c, const struct api_request *r, const struct api_position *at,
                    struct buf *out);
/* The same as a new reference; out of memory as gateway/json/json_memory.h says. */
json_t *api_page_value(const struct api_context *c, const struct api_request *r,
                       const struct api_position *at);

/* --- api_param.c: work of many transactions, done once if the request has an Idempotency-Key. The key is
 * recorded in an earlier transaction. If the gateway or the database dies in the middle, a repetition does
 * the rest, with the time at which the first one began. */
/* A hash of the request's content, without its Idempotency-Key: a different request with the same key has
 * another hash. */
void api_once_hash(const struct api_request *r, uint8_t out[IDEMPOTENCY_HASH_SIZE]);
/* For a known key: repeats the first answer, or makes an error. */
void api_once_replay(struct api_answer *a, const struct idempotency_request *q);
/* 1: do the work, with q->begun_us; then end it. 0: the answer is made. -1: e, and no answer. */
int api_once_begin(struct api_context *c, struct api_request *r, struct idempotency_request *q,
                   struct err *e);
/* rc: what the work returned; touched: it failed after something was, or may have been, changed. Returns what
 * the operation returns. */
int api_once_end(struct api_context *c, const struct api_request *r, struct idempotency_request *q, int rc,
                 bool touched);

/* --- api_schedule.c: parses and answers requests to schedule; the caller stores several of them in one
 * transaction */

#define API_ITEMS_MAX ((size_t)2 * API_BATCH_MAX)
/* The items of one transaction. One thread's. */
struct api_scheduler {
    struct json_parser parser;
    struct arena arena;
    struct store_item items[API_ITEMS_MAX];
    size_t count, bytes;
};

struct api_entry; /* one message of a request */
struct api_schedule {
    struct api_request *request;
    bool batch;
    struct api_entry *entries; /* in the scheduler's arena */
    size_t count;
    size_t first_item, item_count; /* the items to store */
};

void api_scheduler_open(struct api_scheduler *s, const struct accept_rules *rules);
void api_scheduler_close(struct api_scheduler *s);
/* Removes all items. now_ms: the database's clock; hold: which messages RabbitMQ may hold now. */
void api_scheduler_reset(struct api_scheduler *s, int64_t now_ms, enum hold_policy hold);
/* Is there room for another request? */
bool api_scheduler_has_room(const struct api_scheduler *s);
/* 0: its items are added; -1: the answer is made. There must be room for API_BATCH_MAX items. */
int api_schedule_parse(struct api_scheduler *s, struct api_request *r, struct api_schedule *out);
/* After storing (inside the transaction): makes the answer. created_ms: created_at of the rows. *waits: the
 * item (of a single message only) is blocked by a lock; no answer is made: repeat the request later. -1:
 * error of the database. */
int api_schedule_answer(struct api_scheduler *s, struct api_schedule *q, struct pg *pg, int64_t created_ms,
                        bool *waits, struct err *e);

/* --- api_param.c */

/* May this message be scheduled? -1: no, and text has the reason. */
int api_scope_admits(const struct api_scope *s, const struct accept_rules *rules, const struct message *m,
                     char *text, size_t size);
/* Does the scope have all exchanges? */
bool api_scope_is_all(const struct api_scope *s);
/* NULL: everything. */
const struct operate_scope *api_operate_scope(const struct api_request *r);

/* The functions of the rows of api_operation.c. */
#define API_RECORD_MAX                                                                                       \
    ((size_t)512 * 1024 * 1024) /* of c->arena: a page, or a message and its printed form */
typedef int api_operation_run(struct api_context *c, struct api_request *r, struct err *e);
api_operation_run api_show, api_list, api_cancel, api_reschedule, api_retry, api_bulk, api_dead_list,
    api_dead_groups, api_dead_show, api_dead_bulk, api_policy_set, api_recur_list, api_recur_set,
    api_recur_run, api_recur_preview, api_whoami, api_slo, api_forecast, api_ask;

#endif
