/* Between the gateway/api/api*.c files. */
#ifndef POSTDATE_GATEWAY_API_API_INTERNAL_H
#define POSTDATE_GATEWAY_API_API_INTERNAL_H

#include "gateway/api/api.h"
#include "gateway/json/json_message_internal.h"

/* A new reference to an object (with the "json" of messages as gateway/json/json_document.h says), or NULL
 * and the answer is a problem: 400 for what is not JSON, 422 for JSON that is no object. */
json_t *api_parse_body(struct bytes body, struct api_answer *a);
/* The problem object of one message in a batch, or of a whole answer; NULL: out of memory. */
json_t *api_problem_object(enum api_problem p, const char *detail);
void api_dump(const json_t *value, struct api_answer *a);

/* The value of a parameter; data NULL when it is not there. */
struct bytes api_param(const struct api_request *r, const char *name);
/* -1 (answered): a parameter that is not among the names (NULL-terminated), is given twice or is no text. */
int api_params_check(struct api_request *r, const char *const names[]);

/* What a filter may have, by name (NULL-terminated). */
extern const char *const api_filter_names[];
/* Reads a filter from those of the params that belong to it. -1: answered. Views into the params. */
int api_filter_read(const struct api_request *r, struct lookup_filter *out, struct api_answer *a);
/* The same from a JSON object; values (API_PARAMS_MAX) keeps what out points to. */
int api_filter_from_json(const json_t *filter, struct api_request *scratch, struct lookup_filter *out,
                         struct api_answer *a);

/* May this message be scheduled? -1: no, and text says why. */
int api_scope_admits(const struct api_scope *s, const struct accept_rules *rules, const struct message *m,
                     char *text, size_t size);
/* NULL: everything. */
const struct operate_scope *api_operate_scope(const struct api_request *r);

/* What the rows of api_operation.c run. */
int api_run_show(struct api_context *c, struct api_request *r, struct err *e);
int api_run_cancel(struct api_context *c, struct api_request *r, struct err *e);
int api_run_reschedule(struct api_context *c, struct api_request *r, struct err *e);
int api_run_retry(struct api_context *c, struct api_request *r, struct err *e);
int api_run_fail(struct api_context *c, struct api_request *r, struct err *e);
int api_list(struct api_context *c, struct api_request *r, struct err *e);
int api_bulk(struct api_context *c, struct api_request *r, struct err *e);

#endif
