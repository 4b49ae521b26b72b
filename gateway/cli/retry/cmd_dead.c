/* Messages that consumers refused until no attempt was left. */
#include "core/base/duration.h"
#include "core/base/timestamp.h"
#include "core/message/retry_policy.h"
#include "gateway/cli/cli.h"
#include "gateway/cli/command.h"
#include "gateway/cli/text.h"
#include "gateway/json/json_dead.h"
#include "gateway/json/json_message.h"
#include "sql/operate/dead.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#define WHEN_WIDTH 15 /* "23 h 59 min ago" */
#define REASON_WIDTH 14
#define SHOWN_MAX 1100 /* a name of 255 bytes, all of them escaped */
#define LIMIT_MAX 1000000000

static void print_row(const struct dead_letter_record *r, int64_t now_ms, bool first)
{
    char id[MESSAGE_ID_TEXT_SIZE], when[CLI_WHEN_SIZE], queue[SHOWN_MAX];
    if (first)
        printf("%-36s %-*s %-*s %s\n", "ID", WHEN_WIDTH, "DIED", REASON_WIDTH, "REASON", "QUEUE");
    printf("%s %-*s %-*s %s\n", message_id_format(r->id, id), WHEN_WIDTH,
           cli_format_when(r->died_us / 1000, now_ms, when), REASON_WIDTH, r->reason,
           text_show(r->queue, TEXT_ANY_WIDTH, queue, sizeof queue));
}

static void print_groups(const struct dead_groups *g, int64_t now_ms)
{
    if (g->count > 0)
        printf("%7s %-*s %-*s %-*s %s\n", "COUNT", WHEN_WIDTH, "OLDEST", WHEN_WIDTH, "NEWEST", REASON_WIDTH,
               "REASON", "QUEUE, EXCHANGE, ROUTING KEY");
    for (size_t i = 0; i < g->count && cli_output_error() == 0; i++) {
        char oldest[CLI_WHEN_SIZE], newest[CLI_WHEN_SIZE], reason[SHOWN_MAX], shown[SHOWN_MAX];
        printf("%7lld %-*s %-*s %-*s", (long long)g->groups[i].count, WHEN_WIDTH,
               cli_format_when(g->groups[i].oldest_ms, now_ms, oldest), WHEN_WIDTH,
               cli_format_when(g->groups[i].newest_ms, now_ms, newest), REASON_WIDTH,
               text_show(g->groups[i].reason, REASON_WIDTH, reason, sizeof reason));
        printf(" %s", text_show(g->groups[i].queue, TEXT_ANY_WIDTH, shown, sizeof shown));
        printf(" \"%s\"", text_show(g->groups[i].exchange, TEXT_ANY_WIDTH, shown, sizeof shown));
        printf(" \"%s\"\n", text_show(g->groups[i].routing_key, TEXT_ANY_WIDTH, shown, sizeof shown));
    }
}

static void print_state(const struct dead_letter_record *r, int64_t now_ms)
{
    char id[MESSAGE_ID_TEXT_SIZE];
    if (r->state == DEAD_DEAD) {
        printf("%-12s dead: %s\n", "state", r->reason);
        text_print_time("died", (r->died_us + 999) / 1000, now_ms);
        text_print_time("kept until", r->expires_ms, now_ms);
    } else if (r->state == DEAD_WAITING) {
        printf("%-12s waiting: goes back to its queue\n", "state");
        text_print_time("next", r->next_ms, now_ms);
    } else {
        printf("%-12s returned: not rejected since\n", "state");
    }
    if (r->error.len > 0)
        text_print("error", r->error);
    if (r->has_message)
        printf("%-12s %s\n", "message", message_id_format(r->message, id));
}

static int print_headers(const struct dead_letter_record *r, struct err *e)
{
    struct wire_properties w = {0};
    if (r->properties.len == 0)
        return 0;
    if (wire_properties_read(r->properties, &w, e) != 0)
        return err_wrap(e, "the stored properties can't be read");
    text_print_json("properties", json_properties_value(&w));
    text_print_json("headers", json_table_value(w.headers));
    return 0;
}

static int print_whole(const struct dead_letter_record *r, int64_t now_ms, struct err *e)
{
    char id[MESSAGE_ID_TEXT_SIZE], when[CLI_WHEN_SIZE], text[40];
    printf("%-12s %s\n", "id", message_id_format(r->id, id));
    text_print("queue", r->queue);
    print_state(r, now_ms);
    if (r->exchange.len > 0)
        text_print("exchange", r->exchange);
    else
        printf("%-12s \"\" (the default exchange)\n", "exchange");
    text_print("routing key", r->routing_key);
    printf("%-12s %d deliveries\n", "failed", r->failed);
    for (size_t i = 0; i < r->attempt_count; i++)
        printf("  %s %-*s (%s)\n", timestamp_format(r->attempts[i].at_ms, text, sizeof text), REASON_WIDTH,
               r->attempts[i].reason, cli_format_when(r->attempts[i].at_ms, now_ms, when));
    if (r->state != DEAD_DEAD)
        return 0;
    int rc = print_headers(r, e);
    text_print_body(r->body);
    return rc;
}

struct order {
    struct dead_filter filter;
    bool json, group, all, dry_run;
    int64_t interval_us, limit;
};

struct listing {
    struct cli *cli;
    bool json;
    int64_t now_ms, rows;
    int code; /* why printing stopped */
};

static bool print_record(void *ctx, const struct dead_letter_record *r)
{
    struct listing *l = ctx;
    l->rows++;
    if (!l->json) {
        print_row(r, l->now_ms, l->rows == 1);
        return cli_output_error() == 0;
    }
    l->code = cli_print_json(l->cli, json_dead_value(r, JSON_STYLE_NO_BODY, NULL), JSON_COMPACT);
    return l->code == 0 && cli_output_error() == 0;
}

static int list(struct cli *cli, const struct order *o)
{
    struct listing l = {.cli = cli, .json = o->json, .now_ms = cli->now_ms};
    const struct dead_list what = {.filter = &o->filter, .limit = o->limit, .each = print_record, .ctx = &l};
    struct err e;
    int code = 0;
    if (dead_list(cli->pg, NULL, &what, &e) != 0)
        code = cli_fail(cli, &e);
    else if (l.code != 0)
        code = l.code;
    else if (l.rows == o->limit && !o->json)
        fprintf(stderr, "postdate: the first %lld; --limit shows more, --group counts them\n",
                (long long)o->limit);
    else if (l.rows == 0 && !o->json)
        fputs("postdate: no dead letter matches\n", stderr);
    return code;
}

static int group(struct cli *cli, const struct order *o)
{
    struct dead_groups g;
    struct err e;
    int code = 0;
    if (dead_groups(cli->pg, NULL, &o->filter, &cli->arena, &g, &e) != 0)
        return cli_fail(cli, &e);
    if (!o->json)
        print_groups(&g, cli->now_ms);
    for (size_t i = 0; o->json && i < g.count && code == 0 && cli_output_error() == 0; i++)
        code = cli_print_json(cli, json_dead_group_value(&g.groups[i]), JSON_COMPACT);
    if (code == 0 && !g.complete)
        fprintf(stderr, "postdate: there are more: counted the %d latest, shown %d groups\n", DEAD_LOOKED_MAX,
                DEAD_GROUPS_MAX);
    else if (code == 0 && g.count == 0 && !o->json)
        fputs("postdate: no dead letter matches\n", stderr);
    return code;
}

static int run_list(struct cli *cli, void *order)
{
    const struct order *o = order;
    return o->group ? group(cli, o) : list(cli, o);
}

/* Not only ids of ours: a message that came straight from a publisher got one when it was refused. */
static int parse_id(const struct cli *cli, const char *text, struct message_id *out)
{
    char shown[80];
    if (message_id_parse(bytes_of_str(text), out))
        return 0;
    return cli_usage(cli, "\"%s\" is no id: one looks like 01937f5e-4c00-8a1b-9c2d-3e4f5a6b7c8d",
                     bytes_printable(bytes_of_str(text), shown, sizeof shown));
}

static int run_show(struct cli *cli, void *order)
{
    const struct order *o = order;
    struct dead_name name = {.queue = o->filter.queue};
    struct dead_letter_record record;
    struct err e = {0};
    int code = parse_id(cli, cli->words[0], &name.id);
    if (code != 0)
        return code;
    if (dead_show(cli->pg, NULL, &name, &cli->arena, &record, &e) != 0)
        return cli_fail(cli, &e);
    if (!o->json)
        return print_whole(&record, cli->now_ms, &e) != 0 ? cli_fail(cli, &e) : 0;
    json_t *value = json_dead_value(&record, JSON_STYLE_LINE, &e);
    return e.kind != ERR_NONE ? cli_fail(cli, &e) : cli_print_json(cli, value, JSON_INDENT(2));
}

/* By filters: a count at the end. */
static int operate_filtered(struct cli *cli, const struct order *o, enum dead_kind kind)
{
    const char *done = kind == DEAD_REQUEUE ? "requeued" : "dropped";
    const struct dead_bulk bulk = {
        .kind = kind, .filter = &o->filter, .interval_us = o->interval_us, .dry_run = o->dry_run};
    struct operate_count n;
    struct err e;
    char span[40];
    int rc = dead_bulk(cli->pg, NULL, &bulk, &n, &e);
    if (!o->dry_run)
        cli_changed(cli, n.changed);
    if (rc != 0) {
        if (n.changed > 0)
            fprintf(stderr, "postdate: stopped after %lld\n", (long long)n.changed);
        return cli_fail(cli, &e);
    }
    if (o->dry_run)
        printf("%s%lld would be %s\n", n.minimum ? "at least " : "", (long long)n.matched, done);
    else
        printf("%lld of %lld %s\n", (long long)n.changed, (long long)n.matched, done);
    if (o->interval_us > 0 && n.matched > 1)
        fprintf(stderr, "postdate: the last one returns to its queue %s %s from now\n",
                o->dry_run ? "would be" : "in",
                duration_format_human((n.matched - 1) * o->interval_us / 1000, span, sizeof span));
    return o->dry_run || n.changed == n.matched ? 0 : 1;
}

/* By ids: each answer is a line. */
static int operate_ids(struct cli *cli, const struct order *o, enum dead_kind kind)
{
    char **ids = cli->words;
    const char *done = kind == DEAD_REQUEUE ? "requeued" : "dropped";
    int missing = 0, left = 0, code = 0;
    for (int i = 0; i < cli->word_count && code == 0; i++) {
        struct message_id id;
        struct dead_filter one = {.queue = o->filter.queue, .ids = &id, .id_count = 1};
        const struct dead_bulk bulk = {.kind = kind, .filter = &one, .dry_run = o->dry_run};
        struct operate_count n;
        struct err e;
        code = parse_id(cli, ids[i], &id);
        if (code == 0 && dead_bulk(cli->pg, NULL, &bulk, &n, &e) != 0)
            code = cli_fail(cli, &e);
        if (code != 0)
            break;
        if (!o->dry_run)
            cli_changed(cli, n.changed);
        if (n.matched == 0)
            printf("%s not found\n", ids[i]);
        else if (o->dry_run || n.changed == n.matched)
            printf("%s %s%s\n", ids[i], o->dry_run ? "would be " : "", done);
        else
            printf("%s changed meanwhile\n", ids[i]);
        missing += n.matched == 0;
        left += n.matched > 0 && !o->dry_run && n.changed < n.matched;
    }
    if (code != 0 || missing + left == 0)
        return code;
    return missing == 1 && cli->word_count == 1 ? 66 : 1;
}

static int run_operation(struct cli *cli, void *order)
{
    enum dead_kind kind = (enum dead_kind)cli->verb->kind;
    return cli->word_count > 0 ? operate_ids(cli, order, kind) : operate_filtered(cli, order, kind);
}

static int check_operation(struct cli *cli, struct order *o)
{
    bool by_ids = cli->word_count > 0, filtered = cli_gave(cli, "reason exchange routing-key"),
         queue = o->filter.queue.data != NULL;
    if (o->all && (filtered || queue))
        return cli_usage(cli, "--all goes without filters");
    if (by_ids ? filtered || o->all : !filtered && !queue && !o->all)
        return cli_usage(cli, "%s: give ids, or filters, or --all", cli->verb->name);
    if (o->interval_us > 0 && by_ids)
        return cli_usage(cli, "--rate belongs to requeue with filters");
    if (o->all)
        o->filter.queue = bytes_of_str("*");
    return 0;
}

static int check(struct cli *cli, void *order)
{
    struct order *o = order;
    struct message_id ignored;
    int code = 0;
    if (o->group && cli_gave(cli, "limit"))
        return cli_usage(cli, "--limit is for lists, without --group");
    if (cli->verb->run == run_operation)
        code = check_operation(cli, o);
    for (int i = 0; i < cli->word_count && code == 0; i++)
        code = parse_id(cli, cli->words[i], &ignored);
    return code;
}

static int take_reason(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    if (dead_is_reason(bytes_of_str(text)))
        return cli_take_bytes(cli, o, at, text);
    return cli_usage(cli, "--reason: \"%s\" is none: allowed are " DEAD_REASONS, text);
}

static int take_rate(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    struct err e;
    (void)o;
    return retry_policy_parse_rate(bytes_of_str(text), at, &e) == 0 ? 0 : cli_usage(cli, "--%s", e.text);
}

#define FILTERED "list, requeue and drop"
static const struct cli_option options[] = {
    {"queue", "Q", "rejected by consumers of this queue; * matches any run of characters",
     CLI_TAKE(bytes, order, filter.queue)},
    {"reason", "R", "rejected, delivery_limit, expired, maxlen, deadline, return_failed", take_reason,
     .offset = offsetof(struct order, filter.reason), .of = FILTERED,
     .words = "rejected delivery_limit expired maxlen deadline return_failed"},
    {"exchange", "E", "routed to the queue through this exchange", CLI_TAKE(bytes, order, filter.exchange),
     .of = FILTERED},
    {"routing-key", "K", "with this routing key", CLI_TAKE(bytes, order, filter.routing_key), .letter = 'k',
     .of = FILTERED},
    {"group", NULL, "count them by queue, reason, exchange and routing key", CLI_TAKE(flag, order, group),
     .of = "list"},
    {"limit", "N", "at most this many (default 100)", CLI_TAKE(number, order, limit), .max = LIMIT_MAX,
     .of = "list"},
    {"rate", "N/s", "requeue this many per second (/m minute, /h hour), not all at once", take_rate,
     .offset = offsetof(struct order, interval_us), .of = "requeue"},
    {"all", NULL, "requeue or drop all of them", CLI_TAKE(flag, order, all), .of = "requeue and drop"},
    {"dry-run", NULL, "only count the matching dead letters", CLI_TAKE(flag, order, dry_run),
     .of = "requeue and drop"},
    {"json", NULL, "one JSON object per line; show: with headers and body", CLI_TAKE(flag, order, json),
     .of = "list and show"},
    {0},
};

static const struct cli_verb verbs[] = {
    {"list", .run = run_list, .cells = CLI_CELLS_EACH},
    {"show", .run = run_show, 1, 1, "give one id"},
    {"requeue", .run = run_operation, 0, INT_MAX, .kind = DEAD_REQUEUE},
    {"drop", .run = run_operation, 0, INT_MAX, .kind = DEAD_DROP},
    {0},
};

const struct command command_dead = {
    .name = "dead",
    .synopsis = "list [FILTERS] [--group] [--json] | show ID [--queue Q] [--json]\n"
                "       postdate dead requeue ID...|(FILTERS|--all [--rate 50/s]) [--dry-run]\n"
                "       postdate dead drop ID...|FILTERS|--all [--dry-run]",
    .summary = "List, show, requeue and drop messages that consumers rejected until no attempt was left",
    .options = options,
    .verbs = verbs,
    .check = check,
    .opens = true,
    .choices = "specify list, show, requeue or drop",
    .order_size = sizeof(struct order),
    .initial = &(const struct order){.limit = 100},
};
