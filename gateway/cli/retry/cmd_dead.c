/* Messages that consumers refused until no attempt was left. */
#include "core/base/duration.h"
#include "core/message/retry_policy.h"
#include "gateway/cli/cli.h"
#include "gateway/cli/retry/dead_print.h"
#include "gateway/json/json_dead.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOW_MAX ((size_t)300 * 1024 * 1024) /* one message, its printed form */
#define LIST_MAX ((size_t)64 * 1024 * 1024)
#define LIMIT_MAX 1000000000

struct order {
    struct dead_filter filter;
    bool filtered; /* by more than the queue of an id */
    bool json, group, all, dry_run, has_rate, has_limit;
    int64_t interval_us, limit;
};

struct listing {
    bool json;
    int64_t now_ms, rows;
    int code; /* why printing stopped */
};

static bool print_record(void *ctx, const struct dead_letter_record *r)
{
    struct listing *l = ctx;
    l->rows++;
    if (!l->json) {
        dead_print_row(r, l->now_ms, l->rows == 1);
        return cli_output_error() == 0;
    }
    json_auto_t *value = json_dead_value(r, JSON_STYLE_NO_BODY, NULL);
    l->code = cli_print_json(value, JSON_COMPACT);
    return l->code == 0 && cli_output_error() == 0;
}

static int list(struct cli *cli, const struct order *o, int64_t now_ms)
{
    struct listing l = {.json = o->json, .now_ms = now_ms};
    const struct dead_list what = {.filter = &o->filter, .limit = o->limit, .each = print_record, .ctx = &l};
    struct err e;
    int code = 0;
    if (dead_list(cli->pg, NULL, &what, &e) != 0)
        code = cli_fail(&e);
    else if (l.code != 0)
        code = l.code;
    else if (l.rows == o->limit && !o->json)
        fprintf(stderr, "postdate: the first %lld; --limit shows more, --group counts them\n",
                (long long)o->limit);
    else if (l.rows == 0 && !o->json)
        fputs("postdate: no dead letter matches\n", stderr);
    return code;
}

static int print_groups_json(const struct dead_groups *g)
{
    int code = 0;
    for (size_t i = 0; i < g->count && code == 0 && cli_output_error() == 0; i++) {
        json_auto_t *value = json_dead_group_value(&g->groups[i]);
        code = cli_print_json(value, JSON_COMPACT);
    }
    return code;
}

static int group(struct cli *cli, const struct order *o, int64_t now_ms)
{
    struct dead_groups g;
    struct arena arena;
    struct err e;
    int code = 0;
    arena_init(&arena, LIST_MAX);
    if (dead_groups(cli->pg, NULL, &o->filter, &arena, &g, &e) != 0)
        code = cli_fail(&e);
    else if (o->json)
        code = print_groups_json(&g);
    else
        dead_print_groups(&g, now_ms);
    if (code == 0 && !g.complete)
        fprintf(stderr, "postdate: there are more: counted are the %d that died last, shown %d groups\n",
                DEAD_LOOKED_MAX, DEAD_GROUPS_MAX);
    else if (code == 0 && g.count == 0 && !o->json)
        fputs("postdate: no dead letter matches\n", stderr);
    arena_free(&arena);
    return code;
}

static int run_list(struct cli *cli, const struct order *o)
{
    int64_t now_ms = 0;
    if (o->group && o->has_limit)
        return cli_usage(cli, "--limit is for lists, without --group");
    int code = cli_open(cli, CLI_SCHEMA_CURRENT);
    if (code == 0)
        code = cli_now(cli, &now_ms);
    if (code != 0)
        return code;
    return o->group ? group(cli, o, now_ms) : list(cli, o, now_ms);
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

static int print_whole(const struct dead_letter_record *r, bool json, int64_t now_ms)
{
    struct err e = {0};
    if (!json)
        return dead_print_whole(r, now_ms, &e) != 0 ? cli_fail(&e) : 0;
    json_auto_t *value = json_dead_value(r, JSON_STYLE_LINE, &e);
    return e.kind != ERR_NONE ? cli_fail(&e) : cli_print_json(value, JSON_INDENT(2));
}

static int run_show(struct cli *cli, const struct order *o, int count, char **ids)
{
    struct dead_name name = {.queue = o->filter.queue};
    struct dead_letter_record record;
    struct arena arena;
    struct err e;
    int64_t now_ms = 0;
    if (count != 1)
        return cli_usage(cli, "show: give one id");
    int code = parse_id(cli, ids[0], &name.id);
    if (code == 0)
        code = cli_open(cli, CLI_SCHEMA_CURRENT);
    if (code == 0)
        code = cli_now(cli, &now_ms);
    if (code != 0)
        return code;
    arena_init(&arena, SHOW_MAX);
    if (dead_show(cli->pg, NULL, &name, &arena, &record, &e) != 0)
        code = cli_fail(&e);
    else
        code = print_whole(&record, o->json, now_ms);
    arena_free(&arena);
    return code;
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
        return cli_fail(&e);
    }
    if (o->dry_run)
        printf("%s%lld would be %s\n", n.minimum ? "at least " : "", (long long)n.matched, done);
    else
        printf("%lld of %lld %s\n", (long long)n.changed, (long long)n.matched, done);
    if (o->has_rate && n.matched > 1)
        fprintf(stderr, "postdate: the last one goes back %s %s from now\n", o->dry_run ? "would be" : "in",
                duration_format_human((n.matched - 1) * o->interval_us / 1000, span, sizeof span));
    return o->dry_run || n.changed == n.matched ? 0 : 1;
}

/* By ids: each answer is a line. */
static int operate_ids(struct cli *cli, const struct order *o, enum dead_kind kind, int count, char **ids)
{
    const char *done = kind == DEAD_REQUEUE ? "requeued" : "dropped";
    int missing = 0, left = 0, code = 0;
    for (int i = 0; i < count && code == 0; i++) {
        struct message_id id;
        struct dead_filter one = {.queue = o->filter.queue, .ids = &id, .id_count = 1};
        const struct dead_bulk bulk = {.kind = kind, .filter = &one, .dry_run = o->dry_run};
        struct operate_count n;
        struct err e;
        code = parse_id(cli, ids[i], &id);
        if (code == 0 && dead_bulk(cli->pg, NULL, &bulk, &n, &e) != 0)
            code = cli_fail(&e);
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
    return missing == 1 && count == 1 ? 66 : 1;
}

static int run_operation(struct cli *cli, const struct order *o, enum dead_kind kind, int count, char **ids)
{
    bool queue_only = o->filter.queue.data != NULL && !o->filtered;
    struct message_id ignored;
    int code = 0;
    if (count > 0 ? o->filtered || o->all : !o->filtered && !queue_only)
        return cli_usage(cli, "%s: give ids, or filters, or --all",
                         kind == DEAD_REQUEUE ? "requeue" : "drop");
    if (o->has_rate && (kind == DEAD_DROP || count > 0))
        return cli_usage(cli, "--rate belongs to requeue with filters");
    for (int i = 0; i < count && code == 0; i++)
        code = parse_id(cli, ids[i], &ignored);
    if (code == 0)
        code = cli_open(cli, CLI_SCHEMA_CURRENT);
    if (code != 0)
        return code;
    return count > 0 ? operate_ids(cli, o, kind, count, ids) : operate_filtered(cli, o, kind);
}

static int run_order(struct cli *cli, const struct order *o, int count, char **words)
{
    const char *verb = count > 0 ? words[0] : "";
    bool lists = strcmp(verb, "list") == 0, shows = strcmp(verb, "show") == 0;
    if ((lists || shows) && (o->all || o->dry_run || o->has_rate))
        return cli_usage(cli, "--all, --rate and --dry-run belong to requeue and drop");
    if (!lists && (o->group || o->has_limit))
        return cli_usage(cli, "--group and --limit belong to list");
    if (lists && count > 1)
        return cli_usage(cli, "unexpected argument \"%s\"", words[1]);
    if (lists)
        return run_list(cli, o);
    if (shows && o->filtered)
        return cli_usage(cli, "show takes an id, --queue and --json");
    if (shows)
        return run_show(cli, o, count - 1, words + 1);
    if (o->json)
        return cli_usage(cli, "--json belongs to list and show");
    if (strcmp(verb, "requeue") == 0)
        return run_operation(cli, o, DEAD_REQUEUE, count - 1, words + 1);
    if (strcmp(verb, "drop") == 0)
        return run_operation(cli, o, DEAD_DROP, count - 1, words + 1);
    return cli_unknown(cli, verb, "list show requeue drop", "say list, show, requeue or drop");
}

static int take_reason(const struct cli *cli, struct order *o)
{
    o->filter.reason = bytes_of_str(optarg);
    o->filtered = true;
    return dead_is_reason(o->filter.reason)
               ? -1
               : cli_usage(cli, "--reason: \"%s\" is none: allowed are " DEAD_REASONS, optarg);
}

static int take_limit(const struct cli *cli, struct order *o)
{
    char *end = NULL;
    errno = 0;
    o->limit = strtoll(optarg, &end, 10);
    o->has_limit = true;
    if (end == optarg || *end != '\0' || errno != 0 || o->limit < 1 || o->limit > LIMIT_MAX)
        return cli_usage(cli, "--limit: \"%s\" is not a number from 1 to %d", optarg, LIMIT_MAX);
    return -1;
}

static int take_rate(const struct cli *cli, struct order *o)
{
    struct err e;
    o->has_rate = true;
    if (retry_policy_parse_rate(bytes_of_str(optarg), &o->interval_us, &e) != 0)
        return cli_usage(cli, "--%s", e.text);
    return -1;
}

/* -1: go on */
static int take_option(struct cli *cli, int option, char **argv, struct order *o)
{
    switch (option) {
    case 'q':
        o->filter.queue = bytes_of_str(optarg);
        return -1;
    case 'r':
        return take_reason(cli, o);
    case 'E':
        o->filter.exchange = bytes_of_str(optarg);
        break;
    case 'k':
        o->filter.routing_key = bytes_of_str(optarg);
        break;
    case 'R':
        return take_rate(cli, o);
    case 'l':
        return take_limit(cli, o);
    case 'g':
        o->group = true;
        return -1;
    case 'A':
        o->all = true;
        return -1;
    case 'n':
        o->dry_run = true;
        return -1;
    case 'j':
        o->json = true;
        return -1;
    default:
        return cli_common_option(cli, option, argv);
    }
    o->filtered = true;
    return -1;
}

static int run(struct cli *cli, int argc, char **argv)
{
    static const struct option options[] = {{"queue", required_argument, NULL, 'q'},
                                            {"reason", required_argument, NULL, 'r'},
                                            {"exchange", required_argument, NULL, 'E'},
                                            {"routing-key", required_argument, NULL, 'k'},
                                            {"rate", required_argument, NULL, 'R'},
                                            {"limit", required_argument, NULL, 'l'},
                                            {"group", no_argument, NULL, 'g'},
                                            {"dry-run", no_argument, NULL, 'n'},
                                            {"all", no_argument, NULL, 'A'},
                                            {"json", no_argument, NULL, 'j'},
                                            CLI_LONG};
    struct order o = {.limit = 100};
    int option, code;
    while ((option = getopt_long(argc, argv, CLI_SHORT "k:", options, NULL)) != -1)
        if ((code = take_option(cli, option, argv, &o)) >= 0)
            return code;
    if (o.all && (o.filtered || o.filter.queue.data != NULL))
        return cli_usage(cli, "--all goes without filters");
    if (o.all)
        o.filter.queue = bytes_of_str("*");
    return run_order(cli, &o, argc - optind, argv + optind);
}

const struct command command_dead = {
    .name = "dead",
    .synopsis = "list [FILTERS] [--group] [--json] | show ID [--queue Q] [--json]\n"
                "       postdate dead requeue ID...|FILTERS|--all [--rate 50/s] [--dry-run]\n"
                "       postdate dead drop ID...|FILTERS|--all [--dry-run]",
    .summary = "List, show, requeue and drop what consumers refused until no attempt was left",
    .help = "      --queue Q       refused by this queue; * matches any run of characters\n"
            "      --reason R      rejected, delivery_limit, expired, maxlen, deadline, return_failed\n"
            "      --exchange E    that came to the queue by this exchange\n"
            "  -k, --routing-key K with this routing key\n"
            "      --group         count them by queue, reason, exchange and routing key\n"
            "      --limit N       at most this many (default 100)\n"
            "      --rate N/s      requeue so many each second (/m minute, /h hour), not all at once\n"
            "      --all           requeue or drop all of them\n"
            "      --dry-run       only count what would be done\n"
            "      --json          one JSON object per line; show: with headers and body\n",
    .run = run,
};
