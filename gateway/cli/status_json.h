/* What `postdate status` has read, and as JSON. */
#ifndef POSTDATE_GATEWAY_CLI_STATUS_JSON_H
#define POSTDATE_GATEWAY_CLI_STATUS_JSON_H

#include "gateway/config/config.h"
#include "sql/operate/lookup.h"
#include "sql/operate/slo.h"

#define STATUS_PROBLEMS_MAX 8

/* What the broker holds, and up to when. */
struct window {
    const struct config *config;
    int64_t fed_until_ms; /* 0: never fed */
    int64_t handed;
};

struct status {
    struct status_report report;
    struct slo_report slo;
    struct window window;
};

/* What a person should look at; returns how many: literals. */
int status_problems(const struct status_report *s, const char *out[STATUS_PROBLEMS_MAX]);
/* On lines of its own, indented, or in one. Returns an exit code. */
int status_print_json(const struct status *status, bool indented);

#endif
