/* Operations of a SQL function (sql/operate/ask.h): the request's fields, as in the table of operations,
 * become its argument, and its answer is returned. */
#ifndef POSTDATE_GATEWAY_OPS_API_ASK_H
#define POSTDATE_GATEWAY_OPS_API_ASK_H

#include "gateway/ops/api_internal.h"
#include "gateway/ops/api_operation.h"
#include "sql/operate/ask.h"

/* Checks the fields, without the database. ERR_REJECT names the field, its value and what is allowed. */
int api_ask_check(const struct api_request *r, struct err *e);

#endif
