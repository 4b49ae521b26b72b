/* Rates as JSON objects: HTTP, the control queue, `--json`. */
#ifndef POSTDATE_GATEWAY_JSON_JSON_RATE_H
#define POSTDATE_GATEWAY_JSON_JSON_RATE_H

#include "core/base/err.h"
#include "sql/operate/rate.h"
#include <jansson.h>

/* A new reference; out of memory as gateway/json/json_memory.h says. */
json_t *json_rate_value(const struct rate *r);

/* {"rate", "burst", "exchange", "routing_key"}, of which the last two may only say what out has already, or
 * (its routing_key has no data) which routing key it is; without: any. ERR_REJECT names the field, its value
 * and what is allowed. Views into the object. */
int json_rate_read(const json_t *object, struct rate *out, struct err *e);
/* The same without rate and burst. */
int json_rate_read_name(const json_t *object, struct rate *out, struct err *e);

#endif
