#include "core/message/delay.h"
#include "gateway/cli/filter.h"

#include <string.h>

struct order {
    struct cli_filter filter;
    struct operate_due due;
    int64_t shift_ms;
};

static int take_due(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    struct operate_due *due = at;
    if (cli_gave(cli, "delay at"))
        return cli_usage(cli, "give either --delay or --at");
    due->is_delay = strcmp(o->name, "delay") == 0;
    if (due->is_delay)
        return cli_take_duration(cli, o, &due->ms, text);
    struct err e;
    int code = cli_take_time(cli, o, &due->ms, text);
    return code != 0 || delay_check_era("--at", due->ms, &e) == 0 ? code : cli_usage(cli, "%s", e.text);
}

/* A duration that may be negative: --shift=-15m. */
static int take_shift(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    int64_t *ms = at;
    int code = cli_take_duration(cli, o, ms, text + (*text == '-' || *text == '+'));
    *ms *= *text == '-' ? -1 : 1;
    return code;
}

static struct cli_operation operation_of(const struct cli *cli, const struct order *o)
{
    struct cli_operation op = *cli->command->operation;
    op.due = o->due;
    op.shift_ms = o->shift_ms;
    op.has_shift = cli_gave(cli, "shift");
    return op;
}

static int check(struct cli *cli, void *order)
{
    const struct order *o = order;
    const struct cli_operation op = operation_of(cli, o);
    if (cli_gave(cli, "delay at") == op.has_shift)
        return cli_usage(cli, "give one of --delay, --at and (with filters or --key) --shift");
    return cli_check_operation(cli, &op, &o->filter);
}

static int run_reschedule(struct cli *cli, void *order)
{
    const struct order *o = order;
    const struct cli_operation op = operation_of(cli, o);
    return cli_operate(cli, &op, &o->filter);
}

static const struct cli_option options[] = {
    {"delay", "D", "due this long from now: 90s, 15m, 36h", take_due, .offset = offsetof(struct order, due)},
    {"at", "T", "due at this time: 2026-11-22T08:00:00Z, +2h, 'friday 12:00'", take_due,
     .offset = offsetof(struct order, due)},
    {"shift", "D", "with filters or --key: that much later, or earlier (--shift=-15m)", take_shift,
     .offset = offsetof(struct order, shift_ms)},
    {.more = cli_operate_options},
    {.help = "Filters, for all waiting and failed messages that match:"},
    {.more = cli_filter_options},
    {0},
};

const struct command command_reschedule = {
    .name = "reschedule",
    .synopsis = "(ID... | --key KEY [--exchange E]) (--delay D|--at T)\n"
                "       postdate reschedule (FILTERS | --key KEY) --shift D [--dry-run]",
    .summary = "Give messages another due time; their old ids keep working",
    .options = options,
    .check = check,
    .opens = true,
    .run = run_reschedule,
    .takes_words = true,
    .cells = CLI_CELLS_FIND,
    .order_size = sizeof(struct order),
    .initial = &(const struct order){.filter = CLI_FILTER_INIT},
    .operation =
        &(const struct cli_operation){
            .kind = OPERATE_RESCHEDULE,
            .done = "rescheduled",
            .left_out = "claimed or locked meanwhile, the key names another message by now, "
                        "or the new time would be beyond delivery.max_delay",
            .moves = true,
        },
};
