/* Reports as JSON, for the API and the command line. New references; out of memory as
 * gateway/json/json_memory.h says. */
#ifndef POSTDATE_GATEWAY_JSON_JSON_REPORT_H
#define POSTDATE_GATEWAY_JSON_JSON_REPORT_H

#include "sql/operate/forecast.h"
#include "sql/operate/lookup.h"
#include "sql/operate/slo.h"
#include <jansson.h>

/* The objective for lateness, and how far it is met. */
json_t *json_slo(const struct slo_report *r);
/* Work that is held back as configured. */
json_t *json_held(const struct status_held *h);
/* The forecast. */
json_t *json_forecast(const struct forecast_report *r);

#endif
