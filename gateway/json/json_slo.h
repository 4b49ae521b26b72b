/* The objective for lateness as JSON, for the API and the command line. */
#ifndef POSTDATE_GATEWAY_JSON_JSON_SLO_H
#define POSTDATE_GATEWAY_JSON_JSON_SLO_H

#include "sql/operate/slo.h"
#include <jansson.h>

/* A new reference; out of memory as gateway/json/json_memory.h says. */
json_t *json_slo(const struct slo_report *r);

#endif
