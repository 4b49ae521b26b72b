/* Operations that a SQL function does (sql/operate/ask.h): their requests become its argument by the fields
 * that the table of operations names, and its answer is passed on. */
#ifndef POSTDATE_GATEWAY_API_ASK_API_ASK_H
#define POSTDATE_GATEWAY_API_ASK_API_ASK_H

#include "gateway/api/api_internal.h"
#include "gateway/api/api_operation.h"
#include "sql/operate/ask.h"

/* ERR_REJECT names a field of the request, its value and what is allowed. Needs no database. */
int api_ask_check(const struct api_request *r, struct err *e);

#endif
