/* The filters that list, cancel, reschedule and retry share, and what the latter three do with them. */
#ifndef POSTDATE_GATEWAY_CLI_FILTER_H
#define POSTDATE_GATEWAY_CLI_FILTER_H

#include "gateway/cli/command.h"
#include "sql/operate/operate.h"

struct cli_filter {
    struct lookup_filter filter;
    bool dry_run; /* --dry-run */
};

#define CLI_DUE_OPEN_MS INT64_C(253402300800000)

/* The filters, and what the operations have beside them. The order begins with a struct cli_filter. */
extern const struct cli_option cli_filter_options[], cli_operate_options[];

/* What is asked for by ids, by --key, or by filters: each answer is a line, or a count at the end. */
struct cli_operation {
    enum operate_kind kind;
    const char *done;       /* "cancelled" */
    const char *left_out;   /* why fewer may be done than the filters matched */
    bool moves;             /* needs a due time, or with filters a shift; shows the new id */
    struct operate_due due; /* moves: of ids and keys */
    int64_t shift_ms;       /* moves: by filters */
    bool has_shift;
};
/* What can be said wrong with it before; 0 or the exit code. cli->words are ids. */
int cli_check_operation(struct cli *cli, const struct cli_operation *op, const struct cli_filter *f);
/* Does it in the database, which is open; the exit code. */
int cli_operate(struct cli *cli, const struct cli_operation *op, const struct cli_filter *f);

#endif
