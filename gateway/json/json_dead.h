/* Dead letters as JSON objects, and retry policies from them: HTTP, the control queue, `--json`. */
#ifndef POSTDATE_GATEWAY_JSON_JSON_DEAD_H
#define POSTDATE_GATEWAY_JSON_JSON_DEAD_H

#include "core/base/err.h"
#include "core/message/retry_policy.h"
#include "gateway/json/json_message.h"
#include "sql/operate/dead.h"
#include <jansson.h>

/* New references; out of memory as gateway/json/json_memory.h says. */

/* style: JSON_STYLE_NO_BODY for records of dead_list, else for those of dead_show. NULL with e: its
 * properties are malformed. */
json_t *json_dead_value(const struct dead_letter_record *r, unsigned style, struct err *e);
json_t *json_dead_group_value(const struct dead_group *g);

/* Reads the fields of a policy; missing ones are as in the default policy. The pattern is given by the
 * caller. ERR_REJECT names the field, its value and what is allowed. */
int json_policy_read(const json_t *object, struct bytes pattern, struct retry_policy *out, struct err *e);

#endif
