#include "core/base/arena.h"
#include "core/base/duration.h"
#include "core/base/random.h"
#include "core/base/timestamp.h"
#include "gateway/cli/fields.h"
#include "gateway/cli/schedule/schedule.h"
#include "gateway/json/json_message.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAST_MS 1000 /* later than that is no network, and is said */

struct wanted {
    json_t *object; /* the message object, as the batch form would have it */
    json_t *headers, *properties;
    const char *body, *file; /* --body, --file */
    const char *batch;
};

/* As it is for the batch form, but said at once what is wrong with it. */
static int set_time(struct cli *cli, struct wanted *w, const char *field, const char *option)
{
    int64_t ms;
    char text[40];
    int code = cli_parse_time(cli, option, optarg, &ms);
    return code != 0 ? code
                     : cli_set_text(cli, w->object, field, option, timestamp_format(ms, text, sizeof text));
}

static int set_delay(struct cli *cli, struct wanted *w)
{
    struct err e;
    int64_t ms;
    if (duration_parse(optarg, &ms, &e) != 0)
        return cli_usage(cli, "--delay: %s", e.text);
    return cli_set_text(cli, w->object, "delay", "--delay", optarg);
}

/* -1: go on */
static int take_option(struct cli *cli, int option, char **argv, struct wanted *w)
{
    switch (option) {
    case 'k':
        return cli_set_text(cli, w->object, "routing_key", "--routing-key", optarg);
    case 'd':
        return set_delay(cli, w);
    case 'a':
        return set_time(cli, w, "due_at", "--at");
    case 'D':
        return set_time(cli, w, "deadline", "--deadline");
    case 'E':
        return cli_set_text(cli, w->object, "exchange", "--exchange", optarg);
    case 'K':
        return cli_set_text(cli, w->object, "key", "--key", optarg);
    case 'o':
        return cli_set_text(cli, w->object, "on_conflict", "--on-conflict", optarg);
    case 'O':
        return cli_set_text(cli, w->object, "hold", "--hold", optarg);
    case 'H':
        return cli_set_pair(cli, w->headers, "--header", optarg);
    case 'P':
        return cli_set_pair(cli, w->properties, "--property", optarg);
    case 't':
        return cli_set_text(cli, w->properties, "content_type", "--content-type", optarg);
    case 'b':
        w->body = optarg;
        return -1;
    case 'f':
        w->file = optarg;
        return -1;
    case 'B':
        w->batch = optarg;
        return -1;
    default:
        return cli_common_option(cli, option, argv);
    }
}

static int check_options(const struct cli *cli, const struct wanted *w)
{
    if (w->batch != NULL) {
        if (json_object_size(w->object) + json_object_size(w->headers) + json_object_size(w->properties) >
                0 ||
            w->body != NULL || w->file != NULL)
            return cli_usage(cli, "--batch takes everything from the file: leave the other options out");
        return 0;
    }
    bool delay = json_object_get(w->object, "delay") != NULL,
         at = json_object_get(w->object, "due_at") != NULL;
    if (json_object_get(w->object, "routing_key") == NULL)
        return cli_usage(cli, "-k ROUTING_KEY is missing");
    if (delay == at)
        return cli_usage(cli, "give either --delay or --at");
    if (w->body != NULL && w->file != NULL)
        return cli_usage(cli, "give only one of --body and --file");
    if (w->body == NULL && w->file == NULL)
        return cli_usage(cli, "the body is missing: give --body TEXT, --file FILE or - for stdin");
    return 0;
}

static int report_result(const struct store_item *item)
{
    char id[MESSAGE_ID_TEXT_SIZE], text[480], key[300];
    switch (item->result) {
    case STORE_ACCEPTED:
    case STORE_REPLACED:
        puts(message_id_format(item->message.id, id));
        return 0;
    case STORE_KEPT:
    case STORE_DUPLICATE:
        puts(message_id_format(item->existing_id, id));
        cli_say("key \"%s\" already names this message, which was kept (--on-conflict replace changes it)",
                bytes_printable(item->message.key, key, sizeof key));
        return 0;
    case STORE_CONFLICT:
    case STORE_SKIPPED:
    case STORE_WAITS:
        break;
    }
    cli_say("not scheduled: %s", schedule_refusal(item, text, sizeof text));
    return item->result == STORE_WAITS ? 75 : 1;
}

static int store_message(struct cli *cli, struct store_item *item, int64_t now_ms)
{
    struct random_pool pool = {0};
    uint8_t random[10];
    struct err e;
    bool soon = item->message.due_ms <= now_ms + SCHEDULE_WAKE_MS;
    random_take(&pool, random, sizeof random);
    item->message.id = message_id_make(item->message.due_ms, random);
    if (schedule_store(cli, item, 1, &e) != 0)
        return cli_fail(&e);
    if (item->result == STORE_ACCEPTED && soon && store_wake(cli->pg, &e) != 0)
        cli_say("stored, but the gateways could not be woken: %s", e.text);
    return report_result(item);
}

/* Somebody's clock or calendar may be wrong. */
static void warn_of_past(const struct wanted *w, int64_t due_ms, int64_t now_ms)
{
    char when[CLI_WHEN_SIZE];
    if (json_object_get(w->object, "due_at") != NULL && due_ms < now_ms - PAST_MS)
        cli_say("--at is %s: the message is delivered at once", cli_format_when(due_ms, now_ms, when));
}

static int schedule_one(struct cli *cli, const struct wanted *w, struct arena *a)
{
    struct accept_rules rules = config_accept_rules(&cli->config);
    struct store_item item = {0};
    struct json_parser parser;
    struct err e;
    if (json_object_size(w->headers) > 0)
        json_object_set(w->object, "headers", w->headers);
    if (json_object_size(w->properties) > 0)
        json_object_set(w->object, "properties", w->properties);
    char *text = json_dumps(w->object, JSON_COMPACT);
    json_parser_init(&parser, &rules);
    int code = 0;
    if (text == NULL)
        code = cli_no_memory();
    if (code == 0 && w->file != NULL)
        code = cli_read_body(w->file, rules.max_body, a, &parser.outside_body);
    else if (w->body != NULL)
        parser.outside_body = bytes_of_str(w->body);
    if (code == 0)
        code = cli_open(cli, CLI_SCHEMA_CURRENT);
    if (code == 0)
        code = schedule_rules(cli, &parser.rules);
    if (code == 0)
        code = cli_now(cli, &parser.now_ms);
    if (code == 0 && json_message_parse(&parser, bytes_of_str(text), a, &item.message, &e) != 0)
        code = cli_fail(&e);
    if (code == 0)
        warn_of_past(w, item.message.due_ms, parser.now_ms);
    if (code == 0)
        code = store_message(cli, &item, parser.now_ms);
    json_parser_free(&parser);
    free(text);
    return code;
}

static int parse_options(struct cli *cli, int argc, char **argv, struct wanted *w)
{
    static const struct option options[] = {{"routing-key", required_argument, NULL, 'k'},
                                            {"delay", required_argument, NULL, 'd'},
                                            {"at", required_argument, NULL, 'a'},
                                            {"deadline", required_argument, NULL, 'D'},
                                            {"exchange", required_argument, NULL, 'E'},
                                            {"key", required_argument, NULL, 'K'},
                                            {"on-conflict", required_argument, NULL, 'o'},
                                            {"hold", required_argument, NULL, 'O'},
                                            {"header", required_argument, NULL, 'H'},
                                            {"property", required_argument, NULL, 'P'},
                                            {"content-type", required_argument, NULL, 't'},
                                            {"body", required_argument, NULL, 'b'},
                                            {"file", required_argument, NULL, 'f'},
                                            {"batch", required_argument, NULL, 'B'},
                                            CLI_LONG};
    int option, code;
    while ((option = getopt_long(argc, argv, CLI_SHORT "k:", options, NULL)) != -1) {
        if ((code = take_option(cli, option, argv, w)) >= 0)
            return code;
    }
    /* A lone "-" is the body from stdin. */
    if (optind < argc && strcmp(argv[optind], "-") == 0 && w->file == NULL) {
        w->file = "-";
        optind++;
    }
    if (optind < argc)
        return cli_usage(cli, "unexpected argument \"%s\"", argv[optind]);
    code = check_options(cli, w);
    return code != 0 ? code : -1;
}

static int run_schedule(struct cli *cli, int argc, char **argv)
{
    struct wanted w = {.object = json_object(), .headers = json_object(), .properties = json_object()};
    struct arena arena;
    int code = parse_options(cli, argc, argv, &w);
    if (code < 0)
        code = cli_load_config(cli);
    else
        goto out;
    if (code != 0)
        goto out;
    if (w.batch != NULL) {
        code = schedule_batch(cli, w.batch);
    } else {
        arena_init(&arena, (size_t)cli->config.intake.max_body * 2 + ((size_t)1 << 20));
        code = schedule_one(cli, &w, &arena);
        arena_free(&arena);
    }
out:
    json_decref(w.object);
    json_decref(w.headers);
    json_decref(w.properties);
    return code;
}

const struct command command_schedule = {
    .name = "schedule",
    .synopsis = "-k ROUTING_KEY (--delay D|--at T) [OPTIONS] (--body S|--file F|-)\n"
                "       postdate schedule --batch FILE|-",
    .summary = "Schedule a message and print its id, or many from a file",
    .help = "  -k, --routing-key K where the message goes in the end\n"
            "      --delay D       wait this long: 250ms, 90s, 15m, 36h, 30d, PT15M\n"
            "      --at T          due at this time: 2026-11-22T08:00:00Z, +2h, 09:00, 'tomorrow 09:00'\n"
            "      --deadline T    not delivered after this time: then it is expired\n"
            "      --exchange E    delivery exchange (default: delivery.exchange)\n"
            "      --key KEY       a name of your own for it, to cancel or replace it by\n"
            "      --on-conflict X when the key is taken: keep (default), replace, reject\n"
            "      --hold X        where it waits: gateway, broker (default: by handover.what)\n"
            "      --header N=V    an AMQP header; V is an integer where it looks like one; repeatable\n"
            "      --property N=V  an AMQP property: priority=5, correlation_id=a1; repeatable\n"
            "      --content-type T\n"
            "      --body S        the body\n"
            "      --file F        the body from a file; - for stdin\n"
            "      --batch F       one JSON object per line: "
            "{\"routing_key\":\"k\",\"delay\":\"15m\",\"body\":\"…\"};\n"
            "                      - for stdin. Other options don't apply\n",
    .run = run_schedule,
};
