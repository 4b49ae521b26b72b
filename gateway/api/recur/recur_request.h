/* Requests about recurring schedules, once their parameters and bodies are checked. The answer is made, or -1
 * with the database's error. */
#ifndef POSTDATE_GATEWAY_API_RECUR_RECUR_REQUEST_H
#define POSTDATE_GATEWAY_API_RECUR_RECUR_REQUEST_H

#include "gateway/api/api_internal.h"
#include "sql/operate/recur.h"

/* On the schedule that the request names, if its version is one of those that the request is for. */
int recur_request_change(struct api_context *c, struct api_request *r, struct recur_request *q,
                         struct err *e);

/* Changes nothing. field: what the answer, an array, is called in an object; "": it is one. */
int recur_request_read(struct api_context *c, struct api_request *r, struct recur_request *q,
                       const char *field, struct err *e);

/* Asks; name, scope and whom it is for are filled in. 1: out is filled, in the arena; 0: answered; -1. */
int recur_request_ask(struct api_context *c, struct api_request *r, struct recur_request *q, struct arena *a,
                      struct recur_answer *out, struct err *e);

#endif
