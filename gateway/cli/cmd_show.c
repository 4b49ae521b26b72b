#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/timestamp.h"
#include "gateway/cli/command.h"
#include "gateway/cli/text.h"
#include "gateway/json/json_message.h"
#include "sql/operate/dead.h"
#include "sql/operate/operate.h"
#include <stdio.h>

#define RECORD_MAX ((size_t)64 * 1024 * 1024) /* one message, its printed form */

static void print_rate(const struct message_rate *r)
{
    char name[1100], at[40];
    printf("%-12s the rate of '%s' (%.*s)", "waits for",
           text_show(r->exchange, TEXT_ANY_WIDTH, name, sizeof name), (int)r->rate.len,
           (const char *)r->rate.data);
    if (r->slot_ms >= 0)
        printf(": about %s\n", timestamp_format(r->slot_ms, at, sizeof at));
    else
        puts(", which is paused");
}

static void print_readable(const struct message_record *r, int64_t now_ms)
{
    const struct message *m = &r->message;
    char id[MESSAGE_ID_TEXT_SIZE];
    printf("%-12s %s\n", "id", message_id_format(m->id, id));
    if (r->former_ids.len > 0)
        text_print("former ids", r->former_ids);
    printf("%-12s %s\n", "state", message_state_name(r->state));
    text_print_time("due", m->due_ms, now_ms);
    if (r->next_at_ms != m->due_ms && r->settled_ms < 0)
        text_print_time("next attempt", r->next_at_ms, now_ms);
    if (r->waits_for_slot)
        print_rate(&r->rate);
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
        puts("body         erased by cancelling");
    else
        text_print_body(m->body);
}

static int print_json(const struct message_record *r)
{
    struct buf out;
    struct err e;
    int code = 0;
    buf_init(&out, RECORD_MAX);
    if (json_message_print(r, JSON_STYLE_PRETTY, &out, &e) != 0) {
        code = cli_fail(&e);
    } else {
        cli_print_object(buf_bytes(&out));
        putchar('\n');
    }
    buf_free(&out);
    return code;
}

struct order {
    const char *key, *exchange;
    struct message_id id;
    bool json;
};

static int check(struct cli *cli, void *order)
{
    struct order *o = order;
    if (cli->word_count != (o->key != NULL ? 0 : 1))
        return cli_usage(cli, "give one message id, or --key KEY");
    if (o->exchange != NULL && o->key == NULL)
        return cli_usage(cli, "--exchange belongs to --key: an id needs none");
    /* Not only ids of ours: what was refused may be known by another one. */
    return o->key != NULL || message_id_parse(bytes_of_str(cli->words[0]), &o->id)
               ? 0
               : cli_parse_id(cli, cli->words[0], &o->id);
}

static int run_show(struct cli *cli, void *order)
{
    struct order *o = order;
    struct message_record record;
    struct err e;
    int code = o->key != NULL ? cli_find_key(cli, o->exchange, o->key, &o->id) : 0;
    if (code != 0)
        return code;
    if (operate_show(cli->pg, NULL, o->id, &cli->arena, &record, &e) != 0) {
        if (e.kind == ERR_NOT_FOUND)
            cli_asking()->explained = dead_explain(cli->pg, NULL, o->id, &e);
        return cli_fail(&e);
    }
    if (o->json)
        return print_json(&record);
    print_readable(&record, cli->now_ms);
    return 0;
}

static const struct cli_option options[] = {
    {"key", "KEY", "the message that this key names", CLI_TAKE(text, order, key)},
    {"exchange", "E", "delivery exchange of the key (default: delivery.exchange)",
     CLI_TAKE(text, order, exchange)},
    {"json", NULL, "as a JSON object, with the body", CLI_TAKE(flag, order, json)},
    {0},
};

const struct command command_show = {
    .name = "show",
    .synopsis = "ID | --key KEY [--exchange E] [--json]",
    .summary = "Show one message",
    .options = options,
    .check = check,
    .opens = true,
    .run = run_show,
    .takes_words = true,
    .cells = CLI_CELLS_KEYS,
    .order_size = sizeof(struct order),
};
