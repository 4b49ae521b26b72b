#include "core/base/bytes.h"
#include "core/base/duration.h"
#include "core/base/timestamp.h"
#include "gateway/cli/fields.h"
#include "gateway/cli/schedule/schedule.h"
#include "gateway/json/json_message.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAST_MS 1000 /* later than that is no network, and is said */
#define PATIENCE 6   /* waits of 0.1 s, 0.2 s … 3.2 s */

struct wanted {
    struct cli_fields f; /* the message object, as the batch form would have it */
    struct bytes body;
    const char *batch;
};

/* As it is for the batch form, but said at once what is wrong with it. */
static int take_time(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    int64_t ms;
    char shown[40];
    int code = cli_parse_time(cli, o->name, text, &ms);
    return code != 0 ? code : cli_take_field(cli, o, at, timestamp_format(ms, shown, sizeof shown));
}

static int take_delay(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    int64_t ms;
    int code = cli_take_duration(cli, o, &ms, text);
    return code != 0 ? code : cli_take_field(cli, o, at, text);
}

static int check_options(const struct cli *cli, const struct wanted *w)
{
    if (w->batch != NULL) {
        if (json_object_size(w->f.object) + json_object_size(w->f.headers) +
                    json_object_size(w->f.properties) >
                0 ||
            w->f.body != NULL || w->f.file != NULL)
            return cli_usage(cli, "--batch takes everything from the file: leave the other options out");
        return 0;
    }
    bool delay = json_object_get(w->f.object, "delay") != NULL,
         at = json_object_get(w->f.object, "due_at") != NULL;
    if (json_object_get(w->f.object, "routing_key") == NULL)
        return cli_usage(cli, "-k ROUTING_KEY is missing");
    if (delay == at)
        return cli_usage(cli, "give either --delay or --at");
    if (w->f.body != NULL && w->f.file != NULL)
        return cli_usage(cli, "give only one of --body and --file");
    if (w->f.body == NULL && w->f.file == NULL)
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

static int store_message(struct cli *cli, struct store_item *item)
{
    struct err e;
    bool soon = item->message.due_ms <= cli->now_ms + SCHEDULE_WAKE_MS;
    item->message.id = message_id_new(item->message.due_ms);
    if (schedule_store(cli, item, 1, &e) != 0)
        return cli_fail(&e);
    if (item->result == STORE_ACCEPTED && soon)
        store_wake(cli->pg);
    return report_result(item);
}

/* Somebody's clock or calendar may be wrong. */
static void warn_of_past(const struct wanted *w, int64_t due_ms, int64_t now_ms)
{
    char when[CLI_WHEN_SIZE];
    if (json_object_get(w->f.object, "due_at") != NULL && due_ms < now_ms - PAST_MS)
        cli_say("--at is %s: the message is delivered at once", cli_format_when(due_ms, now_ms, when));
}

static int schedule_one(struct cli *cli, const struct wanted *w)
{
    struct accept_rules rules;
    struct store_item item = {0};
    struct json_parser parser;
    struct err e;
    int code = schedule_rules(cli, &rules);
    if (code != 0)
        return code;
    cli_fields_join(&w->f);
    char *text = json_dumps(w->f.object, JSON_COMPACT);
    if (text == NULL)
        return cli_no_memory();
    json_parser_init(&parser, &rules);
    parser.outside_body = w->body;
    parser.now_ms = cli->now_ms;
    if (json_message_parse(&parser, bytes_of_str(text), &cli->arena, &item.message, &e) != 0) {
        code = cli_fail(&e);
    } else {
        warn_of_past(w, item.message.due_ms, cli->now_ms);
        code = store_message(cli, &item);
    }
    json_parser_free(&parser);
    free(text);
    return code;
}

static int check(struct cli *cli, void *order)
{
    struct wanted *w = order;
    /* A lone "-" is the body from stdin. */
    bool stdin_body = cli->word_count > 0 && strcmp(cli->words[0], "-") == 0 && w->f.file == NULL;
    if (stdin_body)
        w->f.file = "-";
    if (cli->word_count > stdin_body)
        return cli_usage(cli, "unexpected argument \"%s\"", cli->words[stdin_body]);
    int code = check_options(cli, w);
    if (code == 0)
        code = cli_load_config(cli);
    if (code == 0 && w->f.file != NULL)
        code = cli_read_body(w->f.file, (size_t)cli->config.intake.max_body, &cli->arena, &w->body);
    else if (w->f.body != NULL)
        w->body = bytes_of_str(w->f.body);
    return code;
}

static int run_schedule(struct cli *cli, void *order)
{
    const struct wanted *w = order;
    return w->batch != NULL ? schedule_batch(cli, w->batch) : schedule_one(cli, w);
}

static const struct cli_option options[] = {
    {"routing-key", "K", "where the message goes in the end", CLI_TAKE(field, wanted, f.object),
     .letter = 'k'},
    {"delay", "D", "wait this long: 250ms, 90s, 15m, 36h, 30d, PT15M", take_delay,
     .offset = offsetof(struct wanted, f.object)},
    {"at", "T", "due at this time: 2026-11-22T08:00:00Z, +2h, 09:00, 'tomorrow 09:00'", take_time,
     .offset = offsetof(struct wanted, f.object), .field = "due_at"},
    {"deadline", "T", "not delivered after this time: then it is expired", take_time,
     .offset = offsetof(struct wanted, f.object)},
    {"spread", "D", "at a time within this long after it is due: 10m", take_delay,
     .offset = offsetof(struct wanted, f.object)},
    {"exchange", "E", "delivery exchange (default: delivery.exchange)", CLI_TAKE(field, wanted, f.object)},
    {"key", "KEY", "a name of your own for it, to cancel or replace it by",
     CLI_TAKE(field, wanted, f.object)},
    {"on-conflict", "X", "when the key is taken: keep (default), replace, reject",
     CLI_TAKE(field, wanted, f.object), .words = "keep replace reject"},
    {"hold", "X", "where it waits: gateway, broker (default: by handover.what)",
     CLI_TAKE(field, wanted, f.object), .words = "gateway broker"},
    {.more = cli_content_options},
    {"batch", "F",
     "one JSON object per line: {\"routing_key\":\"k\",\"delay\":\"15m\",\"body\":\"…\"};" CLI_HELP_LINE
     "- for stdin. Other options don't apply",
     CLI_TAKE(text, wanted, batch), .words = CLI_FILE},
    {0},
};

const struct command command_schedule = {
    .name = "schedule",
    .synopsis = "-k ROUTING_KEY (--delay D|--at T) [OPTIONS] (--body S|--file F|-)\n"
                "       postdate schedule --batch FILE|-",
    .summary = "Schedule a message and print its id, or many from a file",
    .options = options,
    .check = check,
    .opens = true,
    .run = run_schedule,
    .takes_words = true,
    .order_size = sizeof(struct wanted),
    .close = cli_fields_close,
};
