/* The filters that list, cancel, reschedule and retry share, and what the latter three do with them. */
#ifndef POSTDATE_GATEWAY_CLI_FILTER_H
#define POSTDATE_GATEWAY_CLI_FILTER_H

#include "gateway/cli/cli.h"
#include "sql/operate/operate.h"

struct cli_filter {
    struct lookup_filter filter;
    bool given;   /* any condition but key and exchange */
    bool dry_run; /* --dry-run */
};

#define CLI_FILTER_INIT                                                                                      \
    {                                                                                                        \
        .filter = {.due_before_ms = CLI_DUE_OPEN_MS }                                                        \
    }
#define CLI_DUE_OPEN_MS INT64_C(253402300800000)

/* getopt_long entries and their letters; --dry-run belongs to the operations only. */
#define CLI_FILTER_LONG                                                                                      \
    {"state", required_argument, NULL, 's'}, {"due-after", required_argument, NULL, 'a'},                    \
        {"due-before", required_argument, NULL, 'b'}, {"exchange", required_argument, NULL, 'E'},            \
        {"routing-key", required_argument, NULL, 'k'},                                                       \
    {                                                                                                        \
        "key", required_argument, NULL, 'K'                                                                  \
    }
#define CLI_DRY_RUN_LONG                                                                                     \
    {                                                                                                        \
        "dry-run", no_argument, NULL, 'n'                                                                    \
    }
#define CLI_FILTER_HELP                                                                                      \
    "      --state S       scheduled, claimed, handed, delivered, cancelled, superseded, failed,\n"          \
    "                      expired\n"                                                                        \
    "      --due-after T   due at or after this time (2026-11-22T08:00:00Z, -1d, 'today 09:00')\n"           \
    "      --due-before T  due before this time\n"                                                           \
    "      --exchange E    with this delivery exchange\n"                                                    \
    "  -k, --routing-key K with this routing key; * is any run of characters\n"
#define CLI_DRY_RUN_HELP "      --dry-run       with filters: only count what matches\n"

/* Takes one of the options above. -1: go on; else the exit code. *taken says whether it was one of them. */
int cli_filter_option(struct cli *cli, int option, struct cli_filter *f, bool *taken);

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
/* Opens the database and does it; the exit code. ids are checked before anything is done. */
int cli_operate(struct cli *cli, const struct cli_operation *op, const struct cli_filter *f, int id_count,
                char **ids);

#endif
