#include "core/base/buf.h"
#include "core/base/timestamp.h"
#include "gateway/cli/filter.h"
#include "gateway/cli/text.h"
#include "gateway/json/json_message.h"
#include "sql/operate/lookup.h"
#include <stdio.h>
#include <string.h>

#define RECORD_MAX ((size_t)64 * 1024 * 1024)
#define LIMIT_MAX 1000000000
#define ROUTING_KEY_WIDTH 30
#define DUE_WIDTH 15 /* "23 h 59 min ago" */

struct listing {
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
    printf("%s %-10s %-*s ", message_id_format(r->message.id, id), message_state_name(r->state), DUE_WIDTH,
           when);
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
    cli_print_object(buf_bytes(&l->line));
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
    struct listing l = {.json = o->json,
                        .tries = filter->retrying || shows_failed(filter),
                        .retrying = filter->retrying,
                        .now_ms = cli->now_ms};
    struct lookup_page page = {.limit = o->limit};
    struct err e;
    int code = 0;
    buf_init(&l.line, RECORD_MAX);
    if (lookup_list(cli->pg, filter, &page, print_record, &l, &e) != 0)
        code = cli_fail(&e);
    else if (l.e.kind != ERR_NONE)
        code = cli_fail(&l.e);
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
    {"retrying", NULL, "only what waits for another attempt, with attempts and error",
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
