/* The commands that end, or begin anew, messages that are named or filtered. */
#include "gateway/cli/filter.h"

static int check(struct cli *cli, void *order)
{
    return cli_check_operation(cli, cli->command->operation, order);
}

static int run_operation(struct cli *cli, void *order)
{
    return cli_operate(cli, cli->command->operation, order);
}

static const struct cli_option options[] = {
    {.more = cli_operate_options},
    {.help = "Filters:"},
    {.more = cli_filter_options},
    {0},
};

#define OPERATION                                                                                            \
    .synopsis = "ID... | --key KEY [--exchange E] | FILTERS [--dry-run]", .options = options,                \
    .check = check, .opens = true, .run = run_operation, .takes_words = true,                                \
    .order_size = sizeof(struct cli_filter), .initial = &(const struct cli_filter)CLI_FILTER_INIT

const struct command command_cancel = {
    OPERATION,
    .name = "cancel",
    .summary = "Cancel messages; prints a line for each: cancelled, too late or not found",
    .notes = "Filters are for all waiting and failed messages that match.",
    .cells = CLI_CELLS_KEYS,
    .operation =
        &(const struct cli_operation){
            .kind = OPERATE_CANCEL,
            .done = "cancelled",
            .left_out = "claimed or locked meanwhile",
        },
};

const struct command command_retry = {
    OPERATION,
    .name = "retry",
    .summary = "Try messages again, at once: failed ones with all attempts afresh",
    .notes =
        "Filters are for all failed messages that match; with --state retrying, for those that wait for\n"
        "another attempt.",
    .cells = CLI_CELLS_FIND,
    .operation =
        &(const struct cli_operation){
            .kind = OPERATE_RETRY,
            .done = "retried",
            .left_out = "locked meanwhile, or the key names another message by now",
        },
};

const struct command command_fail = {
    OPERATION,
    .name = "fail",
    .summary = "End messages that can't be delivered, or whose delivery is in doubt",
    .notes = "Each answer is a line: failed, busy, too late or not found. The message's error says whether "
             "it may\n"
             "have been delivered; `postdate retry` tries it again.\n"
             "Filters are for all messages in doubt that match.",
    .cells = CLI_CELLS_FIND,
    .operation =
        &(const struct cli_operation){
            .kind = OPERATE_FAIL,
            .done = "failed",
            .left_out = "claimed or locked meanwhile",
        },
};
