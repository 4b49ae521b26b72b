/* How much is due when, as JSON, for the API and the command line. */
#ifndef POSTDATE_GATEWAY_JSON_JSON_FORECAST_H
#define POSTDATE_GATEWAY_JSON_JSON_FORECAST_H

#include "sql/operate/forecast.h"
#include <jansson.h>

/* A new reference; out of memory as gateway/json/json_memory.h says. */
json_t *json_forecast(const struct forecast_report *r);

#endif
