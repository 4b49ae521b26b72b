/* What `postdate status` knows and shows. */
#ifndef POSTDATE_GATEWAY_CLI_STATUS_H
#define POSTDATE_GATEWAY_CLI_STATUS_H

#include "gateway/cli/cli.h"
#include "sql/operate/lookup.h"
#include "sql/operate/slo.h"

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

/* Counts: with millions of messages it takes a second or so. */
int status_read(struct cli *cli, struct status *s, struct err *e);
/* One screen of at most 80 columns. */
void status_print(const struct status *s);
/* flags: of jansson's json_dumps. 0 or the exit code. */
int status_print_json(const struct status *s, size_t flags);

#endif
