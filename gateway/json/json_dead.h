/* Dead letters and retry policies as JSON objects: HTTP, the control queue, `--json`. */
#ifndef POSTDATE_GATEWAY_JSON_JSON_DEAD_H
#define POSTDATE_GATEWAY_JSON_JSON_DEAD_H

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/message/retry_policy.h"
#include "gateway/json/json_message.h"
#include "sql/operate/dead.h"
#include "sql/operate/retry.h"
#include <jansson.h>

/* All append an object without a line end; style: JSON_STYLE_ values or-ed. -1: e says why. */

/* JSON_STYLE_NO_BODY: as dead_list gives it; else as dead_show does. */
int json_dead_print(const struct dead_letter_record *r, unsigned style, struct buf *out, struct err *e);
int json_dead_group_print(const struct dead_group *g, unsigned style, struct buf *out, struct err *e);
int json_policy_print(const struct retry_policy *p, unsigned style, struct buf *out, struct err *e);
#define JSON_WAITS_MAX 100 /* that are listed */
/* The policy of that queue, and what its waits will be. */
int json_match_print(const struct retry_match *m, struct bytes queue, unsigned style, struct buf *out,
                     struct err *e);

/* Fields of a policy, those that are missing as in the default one; the pattern is the caller's. ERR_REJECT
 * names the field, its value and what is allowed. */
int json_policy_read(const json_t *object, struct bytes pattern, struct retry_policy *out, struct err *e);

#endif
