#include "core/base/duration.h"
#include "gateway/cli/filter.h"

struct wanted {
    bool has_due;
    struct cli_operation op;
};

/* A duration that may be negative, for --shift=-15m. */
static int take_duration(const struct cli *cli, const char *name, const char *text, bool is_signed,
                         int64_t *out_ms)
{
    struct err e;
    bool negative = is_signed && *text == '-';
    if (duration_parse(text + (negative || (is_signed && *text == '+')), out_ms, &e) != 0)
        return cli_usage(cli, "%s: %s", name, e.text);
    if (negative)
        *out_ms = -*out_ms;
    return -1;
}

/* -1: go on */
static int take_option(struct cli *cli, int option, char **argv, struct wanted *w, struct cli_filter *f)
{
    bool taken;
    if (option == 'd' || option == 't') {
        if (w->has_due)
            return cli_usage(cli, "give either --delay or --at");
        w->has_due = true;
        w->op.due.is_delay = option == 'd';
        if (option == 'd')
            return take_duration(cli, "--delay", optarg, false, &w->op.due.ms);
        int code = cli_parse_time(cli, "--at", optarg, &w->op.due.ms);
        return code != 0 ? code : -1;
    }
    if (option == 'S') {
        w->op.has_shift = true;
        return take_duration(cli, "--shift", optarg, true, &w->op.shift_ms);
    }
    int code = cli_filter_option(cli, option, f, &taken);
    return taken ? code : cli_common_option(cli, option, argv);
}

static int run_reschedule(struct cli *cli, int argc, char **argv)
{
    static const struct option options[] = {{"delay", required_argument, NULL, 'd'},
                                            {"at", required_argument, NULL, 't'},
                                            {"shift", required_argument, NULL, 'S'},
                                            CLI_FILTER_LONG,
                                            CLI_DRY_RUN_LONG,
                                            CLI_LONG};
    struct wanted w = {.op = *cli->command->operation};
    struct cli_filter f = CLI_FILTER_INIT;
    int option, code;
    while ((option = getopt_long(argc, argv, CLI_SHORT "k:", options, NULL)) != -1)
        if ((code = take_option(cli, option, argv, &w, &f)) >= 0)
            return code;
    if (w.has_due == w.op.has_shift)
        return cli_usage(cli, "give one of --delay, --at and (with filters or --key) --shift");
    return cli_operate(cli, &w.op, &f, argc - optind, argv + optind);
}

const struct command command_reschedule = {
    .name = "reschedule",
    .synopsis = "(ID... | --key KEY [--exchange E]) (--delay D|--at T)\n"
                "       postdate reschedule (FILTERS | --key KEY) --shift D [--dry-run]",
    .summary = "Give messages another due time; their old ids keep working",
    .help =
        "      --delay D       due this long from now: 90s, 15m, 36h\n"
        "      --at T          due at this time: 2026-11-22T08:00:00Z, +2h, 'friday 12:00'\n"
        "      --shift D       with filters or --key: that much later, or earlier (--shift=-15m)\n"
        "      --key KEY       the message that this key names in --exchange (default: delivery.exchange)\n"
        "Filters, for all waiting and failed messages that match:\n" CLI_FILTER_HELP CLI_DRY_RUN_HELP,
    .run = run_reschedule,
    .operation =
        &(const struct cli_operation){
            .kind = OPERATE_RESCHEDULE,
            .done = "rescheduled",
            .left_out = "claimed or locked meanwhile, the key names another message by now, "
                        "or the new time would be beyond delivery.max_delay",
            .moves = true,
        },
};
