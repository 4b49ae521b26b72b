/* Commands on messages, by ids, keys or filters: list, show, cancel, reschedule and others. */
#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/timestamp.h"
#include "core/message/delay.h"
#include "gateway/cli/command.h"
#include "gateway/cli/filter.h"
#include "gateway/cli/text.h"
#include "gateway/json/json_message.h"
#include "sql/operate/dead.h"
#include "sql/operate/lookup.h"
#include "sql/operate/operate.h"

#include <stdio.h>
#include <string.h>

#define CLI_FILTER_INIT                                                                                      \
    {                                                                                                        \
        .filter = {.due_before_ms = CLI_DUE_OPEN_MS }                                                        \
    }

#define RECORD_MAX ((size_t)64 * 1024 * 1024)
#define LIMIT_MAX 1000000000
#define ROUTING_KEY_WIDTH 30
#define DUE_WIDTH 15 /* "23 h 59 min ago" */

struct listing {
    struct cli *cli;
    bool json;
    bool tries;    /* attempts and errors are of interest */
    bool retrying; /* … and when the next one is */
    int64_t now_ms, rows;
    struct buf line;
    struct err e; /* why printing stopped */
};

static void print_row(struct listing *l, const struct message_record *r)
{
    char id[MESSAGE_ID_TEXT_SIZE], when[CLI_WHEN_SIZE], next[CLI_WHEN_SIZE], key[300], error[1100];
    if (l->rows == 1)
        printf("%-36s %-10s %-*s %s%s\n", "ID", "STATE", DUE_WIDTH, "DUE",
               l->retrying ? "NEXT TRY        " : "", l->tries ? "TRIES ROUTING KEY: ERROR" : "ROUTING KEY");
    cli_format_when(r->message.due_ms, l->now_ms, when);
    size_t wide = strlen(when) > DUE_WIDTH ? strlen(when) : DUE_WIDTH;
    printf("%s %-10s %-*s ", message_id_format(r->message.id, id), lookup_state_name(r), DUE_WIDTH, when);
    if (!l->tries) {
        puts(text_show(r->message.routing_key, 31 - wide, key, sizeof key));
        return;
    }
    if (l->retrying) {
        cli_format_when(r->next_at_ms, l->now_ms, next);
        printf("%-*s ", DUE_WIDTH, next);
    }
    printf("%5d %s: ", r->attempts, text_show(r->message.routing_key, ROUTING_KEY_WIDTH, key, sizeof key));
    puts(text_show(r->error, TEXT_ANY_WIDTH, error, sizeof error));
}

static bool print_record(void *ctx, const struct message_record *r)
{
    struct listing *l = ctx;
    l->rows++;
    if (!l->json) {
        print_row(l, r);
        return cli_output_error() == 0;
    }
    buf_reset(&l->line);
    if (json_message_print(r, JSON_STYLE_LINE | JSON_STYLE_NO_BODY, &l->line, &l->e) != 0)
        return false;
    buf_put_u8(&l->line, '\n');
    cli_print_object(l->cli, buf_bytes(&l->line));
    return cli_output_error() == 0;
}

static bool shows_failed(const struct lookup_filter *f)
{
    return f->has_state && (f->state == MESSAGE_FAILED || f->state == MESSAGE_EXPIRED);
}

struct order {
    struct cli_filter filter;
    int64_t limit;
    bool json;
};

static int run_list(struct cli *cli, void *order)
{
    const struct order *o = order;
    const struct lookup_filter *filter = &o->filter.filter;
    struct listing l = {.cli = cli,
                        .json = o->json,
                        .tries = filter->retrying || shows_failed(filter),
                        .retrying = filter->retrying,
                        .now_ms = cli->now_ms};
    struct lookup_page page = {.limit = o->limit};
    struct err e;
    int code = 0;
    buf_init(&l.line, RECORD_MAX);
    if (lookup_list(cli->pg, filter, &page, print_record, &l, &e) != 0)
        code = cli_fail(cli, &e);
    else if (l.e.kind != ERR_NONE)
        code = cli_fail(cli, &l.e);
    else if (l.rows == o->limit)
        fprintf(stderr, "postdate: stopped after %lld message%s; there may be more (--limit)\n",
                (long long)o->limit, o->limit == 1 ? "" : "s");
    else if (l.rows == 0 && !o->json)
        fputs("postdate: no message matches\n", stderr);
    buf_free(&l.line);
    return code;
}

static const struct cli_option options[] = {
    {.more = cli_filter_options},
    {"key", "KEY", "the message that this key names (in each exchange)",
     CLI_TAKE(bytes, order, filter.filter.key)},
    {"retrying", NULL, "only messages that wait for another attempt, with attempts and error",
     CLI_TAKE(flag, order, filter.filter.retrying)},
    {"newest", NULL, "the last due time first", CLI_TAKE(flag, order, filter.filter.newest)},
    {"limit", "N", "at most this many (default 100)", CLI_TAKE(number, order, limit), .max = LIMIT_MAX},
    {"json", NULL, "one JSON object per line, without the body (see show)", CLI_TAKE(flag, order, json)},
    {0},
};

const struct command command_list = {
    .name = "list",
    .synopsis = "[FILTERS] [--retrying] [--newest] [--limit N] [--json]",
    .summary = "List messages in the order they are due",
    .options = options,
    .opens = true,
    .run = run_list,
    .cells = CLI_CELLS_EACH,
    .order_size = sizeof(struct order),
    .initial = &(const struct order){.filter = CLI_FILTER_INIT, .limit = 100},
};

#define SHOW_RECORD_MAX ((size_t)64 * 1024 * 1024) /* one message, its printed form */

static void print_readable(const struct message_record *r, int64_t now_ms)
{
    const struct message *m = &r->message;
    char id[MESSAGE_ID_TEXT_SIZE];
    printf("%-12s %s\n", "id", message_id_format(m->id, id));
    if (r->former_ids.len > 0)
        text_print("former ids", r->former_ids);
    printf("%-12s %s\n", "state", lookup_state_name(r));
    text_print_time("due", m->due_ms, now_ms);
    if (r->next_at_ms != m->due_ms && r->settled_ms < 0)
        text_print_time("next attempt", r->next_at_ms, now_ms);
    if (r->waits_for_slot) {
        char name[1100], at[40];
        printf("%-12s the rate of '%s' (%.*s)", "waits for",
               text_show(r->rate.exchange, TEXT_ANY_WIDTH, name, sizeof name), (int)r->rate.rate.len,
               (const char *)r->rate.rate.data);
        if (r->rate.slot_ms >= 0)
            printf(": about %s\n", timestamp_format(r->rate.slot_ms, at, sizeof at));
        else
            puts(", which is paused");
    }
    if (m->deadline_ms > 0)
        text_print_time("deadline", m->deadline_ms, now_ms);
    if (m->exchange.len > 0)
        text_print("exchange", m->exchange);
    else
        printf("%-12s %s\n", "exchange", "\"\" (the default exchange)");
    text_print("routing key", m->routing_key);
    if (m->key.len > 0)
        text_print("key", m->key);
    bool gateway = m->hold == HOLD_GATEWAY || lookup_is_retrying(r);
    printf("%-12s %s\n", "held by", gateway ? "gateway" : "broker");
    /* A reschedule or a replacement stores it anew. */
    text_print_time(r->former_ids.len > 0 ? "changed" : "created", r->created_ms, now_ms);
    if (r->settled_ms >= 0)
        text_print_time("settled", r->settled_ms, now_ms);
    if (r->attempts > 0)
        printf("%-12s %d\n", "attempts", r->attempts);
    if (r->error.len > 0)
        text_print("error", r->error);
    if (r->state == MESSAGE_CANCELLED && m->body.len == 0)
        puts("body         erased when the message was cancelled");
    else
        text_print_body(m->body);
}

static int print_json(struct cli *cli, const struct message_record *r)
{
    struct buf out;
    struct err e;
    int code = 0;
    buf_init(&out, SHOW_RECORD_MAX);
    if (json_message_print(r, JSON_STYLE_PRETTY, &out, &e) != 0) {
        code = cli_fail(cli, &e);
    } else {
        cli_print_object(cli, buf_bytes(&out));
        putchar('\n');
    }
    buf_free(&out);
    return code;
}

struct order_show {
    const char *key, *exchange;
    struct message_id id;
    bool json;
};

static int check(struct cli *cli, void *order_show)
{
    struct order_show *o = order_show;
    if (cli->word_count != (o->key != NULL ? 0 : 1))
        return cli_usage(cli, "give one message id, or --key KEY");
    if (o->exchange != NULL && o->key == NULL)
        return cli_usage(cli, "--exchange is for --key only: an id is unique");
    /* Not only Postdate's ids: a dead letter may have another one. */
    return o->key != NULL || message_id_parse(bytes_of_str(cli->words[0]), &o->id)
               ? 0
               : cli_parse_id(cli, cli->words[0], &o->id);
}

static int run_show(struct cli *cli, void *order_show)
{
    struct order_show *o = order_show;
    struct message_record record;
    struct err e;
    int code = o->key != NULL ? cli_find_key(cli, o->exchange, o->key, &o->id) : 0;
    if (code != 0)
        return code;
    if (operate_show(cli->pg, NULL, o->id, &cli->arena, &record, &e) != 0) {
        if (e.kind == ERR_NOT_FOUND)
            cli->asking.explained = dead_explain(cli->pg, NULL, o->id, &e);
        return cli_fail(cli, &e);
    }
    if (o->json)
        return print_json(cli, &record);
    print_readable(&record, cli->now_ms);
    return 0;
}

static const struct cli_option options_show[] = {
    {"key", "KEY", "the message that this key names", CLI_TAKE(text, order_show, key)},
    {"exchange", "E", "delivery exchange of the key (default: delivery.exchange)",
     CLI_TAKE(text, order_show, exchange)},
    {"json", NULL, "as a JSON object, with the body", CLI_TAKE(flag, order_show, json)},
    {0},
};

const struct command command_show = {
    .name = "show",
    .synopsis = "ID | --key KEY [--exchange E] [--json]",
    .summary = "Show one message",
    .options = options_show,
    .check = check,
    .opens = true,
    .run = run_show,
    .takes_words = true,
    .cells = CLI_CELLS_KEYS,
    .order_size = sizeof(struct order_show),
};

struct order_reschedule {
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

static struct cli_operation operation_of(const struct cli *cli, const struct order_reschedule *o)
{
    struct cli_operation op = *cli->command->operation;
    op.due = o->due;
    op.shift_ms = o->shift_ms;
    op.has_shift = cli_gave(cli, "shift");
    return op;
}

static int check_reschedule(struct cli *cli, void *order_reschedule)
{
    const struct order_reschedule *o = order_reschedule;
    const struct cli_operation op = operation_of(cli, o);
    if (cli_gave(cli, "delay at") == op.has_shift)
        return cli_usage(cli, "give one of --delay, --at and (with filters or --key) --shift");
    return cli_check_operation(cli, &op, &o->filter);
}

static int run_reschedule(struct cli *cli, void *order_reschedule)
{
    const struct order_reschedule *o = order_reschedule;
    const struct cli_operation op = operation_of(cli, o);
    return cli_operate(cli, &op, &o->filter);
}

static const struct cli_option options_reschedule[] = {
    {"delay", "D", "due this long from now: 90s, 15m, 36h", take_due,
     .offset = offsetof(struct order_reschedule, due)},
    {"at", "T", "due at this time: 2026-11-22T08:00:00Z, +2h, 'friday 12:00'", take_due,
     .offset = offsetof(struct order_reschedule, due)},
    {"shift", "D", "with filters or --key: that much later, or earlier (--shift=-15m)", take_shift,
     .offset = offsetof(struct order_reschedule, shift_ms)},
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
    .options = options_reschedule,
    .check = check_reschedule,
    .opens = true,
    .run = run_reschedule,
    .takes_words = true,
    .cells = CLI_CELLS_FIND,
    .order_size = sizeof(struct order_reschedule),
    .initial = &(const struct order_reschedule){.filter = CLI_FILTER_INIT},
    .operation =
        &(const struct cli_operation){
            .kind = OPERATE_RESCHEDULE,
            .done = "rescheduled",
            .left_out = "claimed or locked meanwhile, the key now names another message, or the new time "
                        "would be beyond delivery.max_delay",
            .moves = true,
        },
};

/* --- The commands that end, or begin anew, messages that are named or filtered. */

static int check_operate(struct cli *cli, void *order)
{
    return cli_check_operation(cli, cli->command->operation, order);
}

static int run_operation(struct cli *cli, void *order)
{
    return cli_operate(cli, cli->command->operation, order);
}

static const struct cli_option options_operate[] = {
    {.more = cli_operate_options},
    {.help = "Filters:"},
    {.more = cli_filter_options},
    {0},
};

#define OPERATION                                                                                            \
    .synopsis = "ID... | --key KEY [--exchange E] | FILTERS [--dry-run]", .options = options_operate,        \
    .check = check_operate, .opens = true, .run = run_operation, .takes_words = true,                        \
    .order_size = sizeof(struct cli_filter), .initial = &(const struct cli_filter)CLI_FILTER_INIT

const struct command command_cancel = {
    OPERATION,
    .name = "cancel",
    .summary = "Cancel messages; prints a line for each: cancelled, too late or not found",
    .notes = "Filters apply to all waiting and failed messages that match.",
    .cells = CLI_CELLS_KEYS,
    .operation =
        &(const struct cli_operation){
            .kind = OPERATE_CANCEL,
            .done = "cancelled",
            .left_out = "claimed or locked meanwhile",
        },
};

const struct command command_retry = {
    OPERATION,
    .name = "retry",
    .summary = "Try messages again at once; failed ones get all their attempts again",
    .notes = "Filters apply to all failed messages that match; with --state retrying, to those that wait "
             "for\nanother attempt.",
    .cells = CLI_CELLS_FIND,
    .operation =
        &(const struct cli_operation){
            .kind = OPERATE_RETRY,
            .done = "retried",
            .left_out = "locked meanwhile, or the key now names another message",
        },
};

const struct command command_fail = {
    OPERATION,
    .name = "fail",
    .summary = "Give up messages that cannot be delivered, or whose delivery is in doubt (unconfirmed)",
    .notes = "Each answer is a line: failed, busy, too late or not found. The message's error says whether "
             "it may\n"
             "have been delivered; `postdate retry` tries it again.\n"
             "Filters apply to all messages in doubt that match.",
    .cells = CLI_CELLS_FIND,
    .operation =
        &(const struct cli_operation){
            .kind = OPERATE_FAIL,
            .done = "failed",
            .left_out = "claimed or locked meanwhile",
        },
};
