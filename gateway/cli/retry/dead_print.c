#include "gateway/cli/retry/dead_print.h"

#include "core/base/timestamp.h"
#include "gateway/cli/cli.h"
#include "gateway/cli/text.h"
#include "gateway/json/json_message_internal.h"

#include <stdio.h>
#include <stdlib.h>

#define WHEN_WIDTH 15 /* "23 h 59 min ago" */
#define REASON_WIDTH 14
#define SHOWN_MAX 1100 /* a name of 255 bytes, all of them escaped */

void dead_print_row(const struct dead_letter_record *r, int64_t now_ms, bool first)
{
    char id[MESSAGE_ID_TEXT_SIZE], when[CLI_WHEN_SIZE], queue[SHOWN_MAX];
    if (first)
        printf("%-36s %-*s %-*s %s\n", "ID", WHEN_WIDTH, "DIED", REASON_WIDTH, "REASON", "QUEUE");
    printf("%s %-*s %-*s %s\n", message_id_format(r->id, id), WHEN_WIDTH,
           cli_format_when(r->died_us / 1000, now_ms, when), REASON_WIDTH, r->reason,
           text_show(r->queue, TEXT_ANY_WIDTH, queue, sizeof queue));
}

static void print_group(const struct dead_group *g, int64_t now_ms)
{
    char oldest[CLI_WHEN_SIZE], newest[CLI_WHEN_SIZE], reason[SHOWN_MAX], shown[SHOWN_MAX];
    printf("%7lld %-*s %-*s %-*s", (long long)g->count, WHEN_WIDTH,
           cli_format_when(g->oldest_ms, now_ms, oldest), WHEN_WIDTH,
           cli_format_when(g->newest_ms, now_ms, newest), REASON_WIDTH,
           text_show(g->reason, REASON_WIDTH, reason, sizeof reason));
    printf(" %s", text_show(g->queue, TEXT_ANY_WIDTH, shown, sizeof shown));
    printf(" \"%s\"", text_show(g->exchange, TEXT_ANY_WIDTH, shown, sizeof shown));
    printf(" \"%s\"\n", text_show(g->routing_key, TEXT_ANY_WIDTH, shown, sizeof shown));
}

void dead_print_groups(const struct dead_groups *g, int64_t now_ms)
{
    if (g->count > 0)
        printf("%7s %-*s %-*s %-*s %s\n", "COUNT", WHEN_WIDTH, "OLDEST", WHEN_WIDTH, "NEWEST", REASON_WIDTH,
               "REASON", "QUEUE, EXCHANGE, ROUTING KEY");
    for (size_t i = 0; i < g->count && cli_output_error() == 0; i++)
        print_group(&g->groups[i], now_ms);
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
        printf("%-12s returned: was not refused since\n", "state");
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

int dead_print_whole(const struct dead_letter_record *r, int64_t now_ms, struct err *e)
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
