/* Requests about recurring schedules, once their parameters and bodies are checked: the operation is that of
 * the table (`kind`), on the schedule that the request names. */
#ifndef POSTDATE_GATEWAY_API_RECUR_RECUR_REQUEST_H
#define POSTDATE_GATEWAY_API_RECUR_RECUR_REQUEST_H

#include "gateway/api/api_internal.h"
#include "sql/operate/recur.h"

/* Asks with this argument (data NULL: none); out is in c->arena. -1: as sql/operate/recur.h. */
int recur_request_ask(struct api_context *c, const struct api_request *r, struct recur_request *q,
                      struct recur_answer *out, struct err *e);
/* Makes the answer of it. field: what it is called in an object; "": it is one. */
void recur_request_print(struct api_request *r, const struct recur_answer *answer, const char *field);
/* Asks for a change, if the schedule's version is one of those that the request is for, and answers. */
int recur_request_change(struct api_context *c, struct api_request *r, struct bytes argument, struct err *e);

#endif
