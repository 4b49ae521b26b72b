#include "gateway/cli/filter.h"

static int run(struct cli *cli, int argc, char **argv)
{
    static const struct option options[] = {CLI_FILTER_LONG, CLI_DRY_RUN_LONG, CLI_LONG};
    static const struct cli_operation op = {.kind = OPERATE_FAIL, .done = "failed"};
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
    return cli_operate(cli, &op, &f, argc - optind, argv + optind);
}

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
    .run = run,
};
