/* postdate forecast: how much is due when, as a chart. */
#include "core/base/duration.h"
#include "core/base/timestamp.h"
#include "gateway/cli/command.h"
#include "gateway/cli/text.h"
#include "gateway/json/json_report.h"

#include <inttypes.h>
#include <stdio.h>

#define BAR_MAX 40
#define LINES 24 /* about as many by default */

struct order {
    struct forecast_request q;
    bool json;
};

static void print_bucket(const struct forecast_bucket *b, int64_t most)
{
    char time[40], span[40], name[160];
    printf("%.16s %10" PRId64 " ", timestamp_format(b->at_ms, time, sizeof time), b->count);
    int64_t length = b->count * BAR_MAX / most;
    for (int64_t i = 0; i < (length > 0 ? length : 1); i++)
        putchar('#');
    if (b->drain_ms == FORECAST_NEVER)
        printf(" burst: until its rate is resumed");
    else if (b->drain_ms > 0)
        printf(" burst: %s", duration_format_human(b->drain_ms, span, sizeof span));
    if (b->rate.data)
        printf(" (rate of %s)",
               b->rate.len > 0 ? text_show(b->rate, 40, name, sizeof name) : "the default exchange");
    putchar('\n');
}

/* The names with their totals, the greatest first, as in the report. */
static void print_exchanges(const struct forecast_report *r)
{
    char name[160];
    for (size_t k = 0; k < r->exchange_count; k++) {
        int64_t n = 0;
        for (size_t i = 0; i < r->bucket_count; i++)
            n += r->buckets[i].by_exchange[k];
        printf("%-16s %10" PRId64 " for %s\n", "", n,
               r->exchanges[k].len > 0 ? text_show(r->exchanges[k], 40, name, sizeof name)
                                       : "the default exchange");
    }
}

static void print_chart(const struct forecast_report *r)
{
    int64_t most = 1, expected = r->request.from_ms;
    char from[40], until[40], step[40];
    for (size_t i = 0; i < r->bucket_count; i++)
        most = r->buckets[i].count > most ? r->buckets[i].count : most;
    printf("%" PRId64 " due from %.16s until %.16s UTC, by %s\n", r->total,
           timestamp_format(r->request.from_ms, from, sizeof from),
           timestamp_format(r->request.until_ms, until, sizeof until),
           duration_format_human(r->request.step_ms, step, sizeof step));
    for (size_t i = 0; i < r->bucket_count; i++) {
        if (r->buckets[i].at_ms > expected)
            printf("%-16s %10s\n", "…", "0");
        print_bucket(&r->buckets[i], most);
        expected = r->buckets[i].at_ms + r->request.step_ms;
    }
    print_exchanges(r);
    if (r->as_of_ms < 0 || r->now_ms - r->as_of_ms > 60000)
        cli_say("the counts are old: no gateway has counted %s", r->as_of_ms < 0 ? "yet" : "for a minute");
}

static int show_forecast(struct cli *cli, void *order)
{
    struct order *o = order;
    struct forecast_report report;
    struct err e = {0};
    if (o->q.step_ms == 0 && o->q.until_ms == 0)
        o->q.step_ms = INT64_C(86400000) / LINES;
    if (forecast_check(&o->q, cli->now_ms, &e) != 0)
        return cli_usage(cli, "%s", e.text);
    if (forecast_read(cli->pg, &o->q, &cli->arena, &report, &e) != 0)
        return cli_fail(cli, &e);
    if (o->json)
        return cli_print_json(cli, json_forecast(&report), JSON_COMPACT);
    print_chart(&report);
    return 0;
}

static int take_what_if(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    struct err e;
    (void)o;
    return forecast_assume(at, bytes_of_str(text), &e) == 0 ? 0 : cli_usage(cli, "--%s", e.text);
}

static const struct cli_option options[] = {
    {"from", "T", "from then on (default: now)", CLI_TAKE(time, order, q.from_ms)},
    {"until", "T", "until then (default: a day later)", CLI_TAKE(time, order, q.until_ms)},
    {"step", "D", "time per line: 1m, 5m, 1h, 1d (default: chosen to fit)",
     CLI_TAKE(duration, order, q.step_ms)},
    {"exchange", "E", "of this delivery exchange only", CLI_TAKE(bytes, order, q.exchange)},
    {"what-if", "E=R", "as if this exchange had this rate: 'orders=500/s'; may be given again", take_what_if,
     .offset = offsetof(struct order, q)},
    {"json", NULL, "one JSON object, the same as GET /v1/forecast", CLI_TAKE(flag, order, json)},
    {0},
};

const struct command command_forecast = {
    .name = "forecast",
    .synopsis = "[--from T] [--until T] [--step D] [--exchange E] [--what-if E=R] [--json]",
    .summary = "Show how many messages are due when, and how long bursts take to deliver",
    .options = options,
    .opens = true,
    .run = show_forecast,
    .cells = CLI_CELLS_EACH,
    .order_size = sizeof(struct order),
};
