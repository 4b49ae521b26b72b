/* How many messages a second an exchange gets at most. */
#include "core/base/rate.h"
#include "gateway/cli/ops/question.h"

#define FIELD CLI_TAKE(field, cli_asked, fields)
static const struct cli_option options[] = {
    {"burst", "N",
     "messages that may be delivered at once after an idle period," CLI_HELP_LINE
     "1 to 1000000 (default: a fiftieth of the rate per second)",
     FIELD, .max = RATE_BURST_MAX, .of = "set"},
    {"routing-key", "K",
     "only messages with this routing key (default *, any);" CLI_HELP_LINE "of show: the key of a message",
     FIELD, .letter = 'k', .of = "set, show, pause, resume and remove"},
    {"json", NULL, "one JSON object per line, or one", .of = "list and show"},
    {0},
};

static const struct sheet_cell columns[] = {
    {"RATE", 10, .text = "{rate}"},
    {"BURST", -7, .text = "{burst}"},
    {"STATE", 7, .text = "{paused?paused|active}"},
    {"WAITING", -8, .text = "{waiting:1000000+}"},
    {"DRAINED", 15, .text = "{drained_at:when}||-"},
    {"EXCHANGE", 24, .text = "{exchange:name}"},
    {"ROUTING-KEY", 0, .text = "{routing_key:name}"},
    {0},
};

static const struct sheet_cell lines[] = {
    {"exchange", 0, .text = "{exchange:name}"},
    {"routing key", 0, .text = "{routing_key:name}"},
    {"rate", 0, .text = "{rate}{paused? (paused)|}"},
    {"burst", 0, .text = "{burst}"},
    {"waiting", 0, .text = "{waiting:1000000 or more}"},
    {"drained", 0, .text = "about {drained_at:at}"},
    {"changed", 0, .text = "{changed_at:at} by {changed_by:name}"},
    {0},
};

#define ONE_EXCHANGE "give one exchange, or a pattern in quotes: 'orders.*'"
static const struct cli_verb verbs[] = {
    {"set", .least = 2, .most = 2,
     .wrong = "give one exchange, or a pattern in quotes, and a rate: orders 200/s",
     CLI_ASKED("rate_set", "exchange rate", 0)},
    {"list", .wrong = "it takes no argument", .cells = CLI_CELLS_EACH, CLI_ASKED("rate_list", "", columns)},
    {"show", .least = 1, .most = 1, .wrong = "give the name of one exchange",
     CLI_ASKED("rate_match", "exchange", .lines = lines)},
    {"pause", .least = 1, .most = 1, .wrong = ONE_EXCHANGE, CLI_ASKED("rate_pause", "exchange", 0)},
    {"resume", .least = 1, .most = 1, .wrong = ONE_EXCHANGE, CLI_ASKED("rate_resume", "exchange", 0)},
    {"remove", .least = 1, .most = 1, .wrong = ONE_EXCHANGE, CLI_ASKED("rate_remove", "exchange", 0)},
    {0},
};

const struct command command_rate = {
    .name = "rate",
    .synopsis = "set EXCHANGE RATE [--burst N] [-k PATTERN]\n"
                "       postdate rate list [--json]\n"
                "       postdate rate show EXCHANGE [-k ROUTING_KEY] [--json]\n"
                "       postdate rate pause|resume|remove EXCHANGE [-k PATTERN]",
    .summary = "Limit the messages per second that an exchange gets",
    .notes = "RATE is such as 200/s, 1.5/s, 12000/min, 100/h or 10/d; 0 pauses. Messages beyond the rate "
             "wait.\nIn EXCHANGE and PATTERN, * matches any run of characters; the longest match applies.",
    .options = options,
    .verbs = verbs,
    .check = cli_question_check,
    .opens = true,
    .choices = "specify set, list, show, pause, resume or remove",
    .order_size = sizeof(struct cli_asked),
    .close = cli_question_close,
};
