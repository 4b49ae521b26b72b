/* A request of gateway/ops/api.h as one JSON object, for interfaces without paths and parameters (the control
 * queue, the command line):
 *
 *   {"op": "schedule", …a message, or "messages": […]}      {"op": "show", "id" or "key" and "exchange"}
 *   {"op": "cancel", "filter": {…}, "dry_run": true}        {"op": "recur_set", "name", …definition,
 * "if_match"}
 *
 * "op" is a name in the table of operations (api_operation.h). The other fields are the id, by its name
 * there, and the operation's parameters, or the fields of its body. Each request may have a "token".
 * Everything else is as over HTTP. */
#ifndef POSTDATE_GATEWAY_OPS_API_JSON_REQUEST_H
#define POSTDATE_GATEWAY_OPS_API_JSON_REQUEST_H

#include "gateway/ops/api.h"
#include <jansson.h>

struct api_json_request {
    struct bytes text;     /* the caller's */
    json_t *root;          /* without op and token; the request's id and params point into it */
    json_t *token_text;    /* NULL: none */
    json_t *conditions[2]; /* if_match, if_none_match; NULL: none */
    struct buf body;       /* to which the request's body points */
    char numbers[API_PARAMS_MAX][24];
};

void api_json_request_open(struct api_json_request *o, size_t body_max);
void api_json_request_close(struct api_json_request *o); /* may be called twice */

/* Fills op, id, params and body of r, which are valid until o is closed or text freed. -1: the answer is
 * made. */
int api_json_request_read(struct api_json_request *o, struct bytes text, struct api_request *r);
/* len 0: none. */
struct bytes api_json_request_token(const struct api_json_request *o);

/* The answer as one JSON object on one line: the body with "status" in front. */
void api_json_request_print(const struct api_answer *a, struct buf *out);

#endif
