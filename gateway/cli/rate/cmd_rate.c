/* How many messages a second an exchange gets at most. */
#include "core/base/rate.h"
#include "core/base/timestamp.h"
#include "core/message/message.h"
#include "gateway/cli/command.h"
#include "gateway/cli/text.h"
#include "gateway/json/json_rate.h"
#include "sql/operate/rate.h"

#include <inttypes.h>
#include <stdio.h>

#define SHOWN_MAX 1100

struct order {
    struct bytes routing_key;
    int64_t burst; /* 0: not given */
};
static const struct order initial = {{(const uint8_t *)RATE_ANY_KEY, sizeof RATE_ANY_KEY - 1}, 0};

static int check_rate(const struct cli *cli)
{
    struct err e;
    double ignored;
    return rate_parse(bytes_of_str(cli->words[1]), &ignored, &e) == 0 ? 0 : cli_usage(cli, "set: %s", e.text);
}

/* The exchange and the routing key that were named. */
static struct rate named(const struct cli *cli, const struct order *o)
{
    return (struct rate){
        .exchange = bytes_of_str(cli->words[0]), .routing_key = o->routing_key, .burst = (int)o->burst};
}

static int check(struct cli *cli, void *order)
{
    if (cli->word_count == 0)
        return 0;
    const struct rate r = named(cli, order);
    if (r.exchange.len > MESSAGE_NAME_MAX || !bytes_is_text(r.exchange))
        return cli_usage(cli, "%s: give the name of an exchange (allowed: up to %d bytes of UTF-8)",
                         cli->verb->name, MESSAGE_NAME_MAX);
    if (r.routing_key.len > MESSAGE_NAME_MAX || !bytes_is_text(r.routing_key))
        return cli_usage(cli, "--routing-key: allowed are up to %d bytes of UTF-8", MESSAGE_NAME_MAX);
    return cli->word_count == 2 ? check_rate(cli) : 0;
}

/* "exchange "orders"", and the routing key if there is one */
static const char *describe(const struct rate *r, char out[SHOWN_MAX])
{
    const char *exchange = (const char *)r->exchange.data;
    bool any = bytes_equal_str(r->routing_key, RATE_ANY_KEY);
    snprintf(out, SHOWN_MAX, "exchange \"%.*s\"%s%.*s%s", (int)r->exchange.len,
             exchange != NULL ? exchange : "", any ? "" : ", routing key \"",
             any ? 0 : (int)r->routing_key.len, (const char *)r->routing_key.data, any ? "" : "\"");
    return out;
}

static int set(struct cli *cli, void *order)
{
    struct rate r = named(cli, order);
    struct err e;
    char what[SHOWN_MAX], rate[RATE_TEXT_SIZE];
    cli_changed(cli, 1);
    if (rate_parse(bytes_of_str(cli->words[1]), &r.per_second, &e) != 0 || rate_set(cli->pg, &r, &e) != 0)
        return cli_fail(&e);
    if (r.per_second > 0)
        cli_say("%s gets at most %s from now on", describe(&r, what), rate_format(r.per_second, rate));
    else
        cli_say("%s gets nothing from now on: set another rate, or remove it", describe(&r, what));
    return 0;
}

/* What needs no more than the names. */
static int change(struct cli *cli, void *order,
                  int (*run)(struct pg *c, struct bytes exchange, struct bytes routing_key, struct err *e),
                  const char *done)
{
    const struct rate r = named(cli, order);
    struct err e;
    char what[SHOWN_MAX];
    cli_changed(cli, 1);
    if (run(cli->pg, r.exchange, r.routing_key, &e) != 0)
        return cli_fail(&e);
    cli_say("the rate of %s is %s", describe(&r, what), done);
    return 0;
}

static int pause_rate(struct cli *cli, void *order)
{
    return change(cli, order, rate_pause, "paused: nothing goes there until it is resumed");
}

static int resume_rate(struct cli *cli, void *order)
{
    return change(cli, order, rate_resume, "resumed");
}

static int remove_rate(struct cli *cli, void *order)
{
    return change(cli, order, rate_remove, "removed; what waited for it is delivered now");
}

static const char *show_name(struct bytes name, char out[SHOWN_MAX])
{
    return name.len > 0 ? text_show(name, TEXT_ANY_WIDTH, out, SHOWN_MAX) : "\"\"";
}

static void print_row(const struct rate *r, int64_t now_ms)
{
    char rate[RATE_TEXT_SIZE], when[CLI_WHEN_SIZE] = "-", waiting[24], exchange[SHOWN_MAX], key[SHOWN_MAX];
    snprintf(waiting, sizeof waiting, "%" PRId64 "%s", r->waiting, r->waiting >= RATE_WAITING_MAX ? "+" : "");
    if (r->drained_ms >= 0)
        cli_format_when(r->drained_ms, now_ms, when);
    printf("%-10s %7d %-7s %8s %-15s %-24s %s\n", rate_format(r->per_second, rate), r->burst,
           r->paused ? "paused" : "active", waiting, when, show_name(r->exchange, exchange),
           show_name(r->routing_key, key));
}

static int list(struct cli *cli, void *order)
{
    bool json = cli_gave(cli, "json");
    struct rate *rates;
    size_t count = 0;
    struct err e;
    int code = 0;
    (void)order;
    if (rate_list(cli->pg, &cli->arena, &rates, &count, &e) != 0)
        return cli_fail(&e);
    if (!json)
        printf("%-10s %7s %-7s %8s %-15s %-24s %s\n", "RATE", "BURST", "STATE", "WAITING", "DRAINED",
               "EXCHANGE", "ROUTING-KEY");
    for (size_t i = 0; i < count && code == 0 && cli_output_error() == 0; i++) {
        if (json)
            code = cli_print_json(json_rate_value(&rates[i]), JSON_COMPACT);
        else
            print_row(&rates[i], cli->now_ms);
    }
    return code;
}

static void print_rate(const struct rate *r, int64_t now_ms)
{
    char rate[RATE_TEXT_SIZE], when[CLI_WHEN_SIZE], at[40], shown[SHOWN_MAX];
    text_print_name("exchange", r->exchange);
    text_print_name("routing key", r->routing_key);
    printf("%-12s %s%s\n", "rate", rate_format(r->per_second, rate), r->paused ? " (paused)" : "");
    printf("%-12s %d\n", "burst", r->burst);
    printf("%-12s %" PRId64 "%s\n", "waiting", r->waiting, r->waiting >= RATE_WAITING_MAX ? " or more" : "");
    if (r->drained_ms >= 0)
        printf("%-12s about %s (%s)\n", "drained", timestamp_format(r->drained_ms, at, sizeof at),
               cli_format_when(r->drained_ms, now_ms, when));
    printf("%-12s %s (%s) by %s\n", "changed", timestamp_format(r->changed_ms, at, sizeof at),
           cli_format_when(r->changed_ms, now_ms, when), show_name(r->changed_by, shown));
}

static int show(struct cli *cli, void *order)
{
    const struct rate names = named(cli, order);
    struct rate r;
    struct err e;
    if (rate_match(cli->pg, names.exchange, names.routing_key, &cli->arena, &r, &e) != 0)
        return cli_fail(&e);
    if (cli_gave(cli, "json"))
        return cli_print_json(json_rate_value(&r), JSON_INDENT(2));
    print_rate(&r, cli->now_ms);
    return 0;
}

#define ALL_BUT_LIST "set, show, pause, resume and remove"
static const struct cli_option options[] = {
    {"burst", "N",
     "so many may come at once after a while without any," CLI_HELP_LINE
     "1 to 1000000 (default a fiftieth of a second's)",
     CLI_TAKE(number, order, burst), .max = RATE_BURST_MAX, .of = "set"},
    {"routing-key", "K",
     "only messages with such a routing key (default *, any);" CLI_HELP_LINE "of show: the key of a message",
     CLI_TAKE(bytes, order, routing_key), .letter = 'k', .of = ALL_BUT_LIST},
    {"json", NULL, "one JSON object per line, or one", .of = "list and show"},
    {0},
};

#define ONE_EXCHANGE "give one exchange, or a pattern in quotes: 'orders.*'"
static const struct cli_verb verbs[] = {
    {"set", .run = set, 2, 2, "give one exchange, or a pattern in quotes, and a rate: orders 200/s"},
    {"list", .run = list, 0, 0, "it takes no argument", .cells = CLI_CELLS_EACH},
    {"show", .run = show, 1, 1, "give the name of one exchange"},
    {"pause", .run = pause_rate, 1, 1, ONE_EXCHANGE},
    {"resume", .run = resume_rate, 1, 1, ONE_EXCHANGE},
    {"remove", .run = remove_rate, 1, 1, ONE_EXCHANGE},
    {0},
};

const struct command command_rate = {
    .name = "rate",
    .synopsis = "set EXCHANGE RATE [--burst N] [-k PATTERN]\n"
                "       postdate rate list [--json]\n"
                "       postdate rate show EXCHANGE [-k ROUTING_KEY] [--json]\n"
                "       postdate rate pause|resume|remove EXCHANGE [-k PATTERN]",
    .summary = "Say how many messages a second an exchange gets at most",
    .notes = "RATE is such as 200/s, 1.5/s, 12000/min, 100/h or 10/d; 0 pauses. What exceeds it waits.\n"
             "EXCHANGE and PATTERN match names, * any run of characters; the longest match counts.",
    .options = options,
    .verbs = verbs,
    .check = check,
    .opens = true,
    .choices = "say set, list, show, pause, resume or remove",
    .order_size = sizeof(struct order),
    .initial = &initial,
};
