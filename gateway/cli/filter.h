/* The filters of list, cancel, reschedule and retry, and how the latter three apply them. */
#ifndef POSTDATE_GATEWAY_CLI_FILTER_H
#define POSTDATE_GATEWAY_CLI_FILTER_H

#include "gateway/cli/command.h"
#include "sql/operate/operate.h"

struct cli_filter {
    struct lookup_filter filter;
    bool dry_run; /* --dry-run */
};

#define CLI_DUE_OPEN_MS INT64_C(253402300800000)

/* The options of filters, and the further options of operations. The order begins with a struct cli_filter.
 */
extern const struct cli_option cli_filter_options[], cli_operate_options[];

/* An operation on messages by ids, by --key, or by filters: prints a line per message, or a count at the end.
 */
struct cli_operation {
    enum operate_kind kind;
    const char *done;       /* "cancelled" */
    const char *left_out;   /* why fewer messages may be changed than match */
    bool moves;             /* needs a due time, or with filters a shift; prints the new id */
    struct operate_due due; /* moves: of ids and keys */
    int64_t shift_ms;       /* moves: by filters */
    bool has_shift;
};
/* Checks the arguments; 0 or the exit code. cli->words are ids. */
int cli_check_operation(struct cli *cli, const struct cli_operation *op, const struct cli_filter *f);
/* Runs the operation in the database, which is open; the exit code. */
int cli_operate(struct cli *cli, const struct cli_operation *op, const struct cli_filter *f);

#endif
