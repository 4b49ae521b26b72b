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

#define LIST_MAX ((size_t)64 * 1024 * 1024)
#define SHOWN_MAX 1100

struct order {
    struct bytes routing_key;
    int64_t burst; /* 0: not given */
};
static const struct order initial = {{(const uint8_t *)RATE_ANY_KEY, sizeof RATE_ANY_KEY - 1}, 0};

/* The exchange and the routing key that were named; 0 or the exit code. */
static int take_names(struct cli *cli, const struct order *o, struct rate *out)
{
    *out = (struct rate){
        .exchange = bytes_of_str(cli->words[0]), .routing_key = o->routing_key, .burst = (int)o->burst};
    if (out->exchange.len > MESSAGE_NAME_MAX || !bytes_is_text(out->exchange))
        return cli_usage(cli, "%s: give the name of an exchange (allowed: up to %d bytes of UTF-8)",
                         cli->verb->name, MESSAGE_NAME_MAX);
    if (out->routing_key.len > MESSAGE_NAME_MAX || !bytes_is_text(out->routing_key))
        return cli_usage(cli, "--routing-key: allowed are up to %d bytes of UTF-8", MESSAGE_NAME_MAX);
    return 0;
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
    struct rate r;
    struct err e;
    char what[SHOWN_MAX], rate[RATE_TEXT_SIZE];
    int code = take_names(cli, order, &r);
    if (code != 0)
        return code;
    if (rate_parse(bytes_of_str(cli->words[1]), &r.per_second, &e) != 0)
        return cli_usage(cli, "set: %s", e.text);
    if ((code = cli_open(cli, CLI_SCHEMA_CURRENT)) != 0)
        return code;
    cli_changed(cli, 1);
    if (rate_set(cli->pg, &r, &e) != 0)
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
    struct rate r;
    struct err e;
    char what[SHOWN_MAX];
    int code = take_names(cli, order, &r);
    if (code == 0)
        code = cli_open(cli, CLI_SCHEMA_CURRENT);
    if (code != 0)
        return code;
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
    struct arena arena;
    struct err e;
    int64_t now_ms = 0;
    (void)order;
    int code = cli_open(cli, CLI_SCHEMA_CURRENT);
    if (code == 0)
        code = cli_now(cli, &now_ms);
    if (code != 0)
        return code;
    arena_init(&arena, LIST_MAX);
    if (rate_list(cli->pg, &arena, &rates, &count, &e) != 0)
        code = cli_fail(&e);
    if (code == 0 && !json)
        printf("%-10s %7s %-7s %8s %-15s %-24s %s\n", "RATE", "BURST", "STATE", "WAITING", "DRAINED",
               "EXCHANGE", "ROUTING-KEY");
    for (size_t i = 0; i < count && code == 0 && cli_output_error() == 0; i++) {
        json_auto_t *value = json ? json_rate_value(&rates[i]) : NULL;
        if (json)
            code = cli_print_json(value, JSON_COMPACT);
        else
            print_row(&rates[i], now_ms);
    }
    arena_free(&arena);
    return code;
}

static void print_time(const char *name, int64_t at_ms, int64_t now_ms, const char *about)
{
    char when[CLI_WHEN_SIZE], text[40];
    printf("%-12s %s%s (%s)", name, about, timestamp_format(at_ms, text, sizeof text),
           cli_format_when(at_ms, now_ms, when));
}

static void print_rate(const struct rate *r, int64_t now_ms)
{
    char rate[RATE_TEXT_SIZE], shown[SHOWN_MAX];
    printf("%-12s %s\n", "exchange", show_name(r->exchange, shown));
    printf("%-12s %s\n", "routing key", show_name(r->routing_key, shown));
    printf("%-12s %s%s\n", "rate", rate_format(r->per_second, rate), r->paused ? " (paused)" : "");
    printf("%-12s %d\n", "burst", r->burst);
    printf("%-12s %" PRId64 "%s\n", "waiting", r->waiting, r->waiting >= RATE_WAITING_MAX ? " or more" : "");
    if (r->drained_ms >= 0) {
        print_time("drained", r->drained_ms, now_ms, "about ");
        putchar('\n');
    }
    print_time("changed", r->changed_ms, now_ms, "");
    printf(" by %s\n", show_name(r->changed_by, shown));
}

static int show(struct cli *cli, void *order)
{
    struct rate names, r;
    struct arena arena;
    struct err e;
    int64_t now_ms = 0;
    int code = take_names(cli, order, &names);
    if (code == 0)
        code = cli_open(cli, CLI_SCHEMA_CURRENT);
    if (code == 0)
        code = cli_now(cli, &now_ms);
    if (code != 0)
        return code;
    arena_init(&arena, LIST_MAX);
    if (rate_match(cli->pg, names.exchange, names.routing_key, &arena, &r, &e) != 0) {
        code = cli_fail(&e);
    } else if (cli_gave(cli, "json")) {
        json_auto_t *value = json_rate_value(&r);
        code = cli_print_json(value, JSON_INDENT(2));
    } else {
        print_rate(&r, now_ms);
    }
    arena_free(&arena);
    return code;
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
    .choices = "say set, list, show, pause, resume or remove",
    .order_size = sizeof(struct order),
    .initial = &initial,
};
