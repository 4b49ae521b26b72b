/* The commands that end, or begin anew, messages that are named or filtered. */
#include "gateway/cli/filter.h"

static int run_operation(struct cli *cli, int argc, char **argv)
{
    static const struct option options[] = {CLI_FILTER_LONG, CLI_DRY_RUN_LONG, CLI_LONG};
    struct cli_filter f = CLI_FILTER_INIT;
    int option;
    while ((option = getopt_long(argc, argv, CLI_SHORT "k:", options, NULL)) != -1) {
        bool taken;
        int code = cli_filter_option(cli, option, &f, &taken);
        if (!taken)
            code = cli_common_option(cli, option, argv);
        if (code >= 0)
            return code;
    }
    return cli_operate(cli, cli->command->operation, &f, argc - optind, argv + optind);
}

const struct command command_cancel = {
    .name = "cancel",
    .synopsis = "ID... | --key KEY [--exchange E] | FILTERS [--dry-run]",
    .summary = "Cancel messages; each answer is a line: cancelled, too late or not found",
    .help =
        "      --key KEY       the message that this key names in --exchange (default: delivery.exchange)\n"
        "Filters, for all waiting and failed messages that match:\n" CLI_FILTER_HELP CLI_DRY_RUN_HELP,
    .run = run_operation,
    .operation =
        &(const struct cli_operation){
            .kind = OPERATE_CANCEL,
            .done = "cancelled",
            .left_out = "claimed or locked meanwhile",
        },
};

const struct command command_retry = {
    .name = "retry",
    .synopsis = "ID... | --key KEY [--exchange E] | FILTERS [--dry-run]",
    .summary = "Try failed messages again, at once and with all attempts afresh",
    .help =
        "      --key KEY       the message that this key names in --exchange (default: delivery.exchange)\n"
        "Filters, for all failed messages that match:\n" CLI_FILTER_HELP CLI_DRY_RUN_HELP,
    .run = run_operation,
    .operation =
        &(const struct cli_operation){
            .kind = OPERATE_RETRY,
            .done = "retried",
            .left_out = "locked meanwhile, or the key names another message by now",
        },
};

const struct command command_fail = {
    .name = "fail",
    .synopsis = "ID... | --key KEY [--exchange E] | FILTERS [--dry-run]",
    .summary = "End messages that can't be delivered, or whose delivery is in doubt",
    .help =
        "Each answer is a line: failed, busy, too late or not found. The message's error says whether it "
        "may\n"
        "have been delivered; `postdate retry` tries it again.\n\n"
        "      --key KEY       the message that this key names in --exchange (default: delivery.exchange)\n"
        "Filters, for all messages in doubt that match:\n" CLI_FILTER_HELP CLI_DRY_RUN_HELP,
    .run = run_operation,
    .operation =
        &(const struct cli_operation){
            .kind = OPERATE_FAIL,
            .done = "failed",
            .left_out = "claimed or locked meanwhile",
        },
};
