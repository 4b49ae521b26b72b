/* Operations that a SQL function does (sql/operate/ask.h): their requests become its argument by the fields
 * that the table of operations names, and its answer is passed on. */
#ifndef POSTDATE_GATEWAY_API_ASK_API_ASK_H
#define POSTDATE_GATEWAY_API_ASK_API_ASK_H

#include "gateway/api/api_internal.h"
#include "gateway/api/api_operation.h"
#include "sql/operate/ask.h"

/* ERR_REJECT names a field of the request, its value and what is allowed. Needs no database. */
int api_ask_check(const struct api_request *r, struct err *e);
/* Asks with this argument (data NULL: none) and what the request has beside it; out is in c->arena. */
int api_ask_with(struct api_context *c, const struct api_request *r, struct ask_request *q,
                 struct ask_answer *out, struct err *e);
/* Makes the answer of what was asked. */
void api_ask_print(struct api_request *r, const struct ask_answer *answer);
/* Asks for a change, if the thing's version is one of those that the request is for, and answers. */
int api_ask_change(struct api_context *c, struct api_request *r, struct bytes argument, struct err *e);

#endif
