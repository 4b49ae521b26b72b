/* postdate rejected: messages that the intake rejected, without the management plugin. */
#include "amqp/connection/broker.h"
#include "core/base/arena.h"
#include "core/base/clock.h"
#include "core/base/names.h"
#include "core/message/accept.h"
#include "core/message/wire.h"
#include "gateway/cli/cli.h"
#include "gateway/cli/command.h"
#include "gateway/cli/text.h"
#include "gateway/config/config.h"
#include "gateway/json/json_message.h"
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_MAX 1100
#define NUMBERS_MAX 1000
#define LIMIT_MAX 1000000
#define ANSWER_MS 10000
#define EVENT_MS 500
#define MESSAGE_MAX ((size_t)128 * 1024 * 1024) /* RabbitMQ's own limit is at most that */

struct rejected_message {
    int64_t number;                          /* from 1, as they lie in the queue */
    bool no_body;                            /* too large to be shown: body.len says how large */
    struct bytes error, intake, routing_key; /* the reason; the original exchange; "" if unknown */
    struct bytes message_id, headers, properties, body;
};

enum rejected_action { REJECTED_KEEP, REJECTED_REQUEUE, REJECTED_DROP };

/* What becomes of m, whose bytes are valid during the call. *stop: no more. */
typedef enum rejected_action rejected_decide(void *ctx, const struct rejected_message *m, bool *stop);

/* --- the queue */

struct walk {
    struct broker *from, *to; /* to: opened for the first that is published again */
    const struct config *config;
    struct arena arena;
    struct buf properties;
    rejected_decide *decide;
    void *ctx;
    int64_t gone;
};

static void read_message(const struct broker_event *ev, int64_t number, struct rejected_message *m)
{
    struct wire_properties p = {0};
    struct err ignored;
    *m = (struct rejected_message){.number = number,
                                   .properties = ev->properties,
                                   .body = ev->body,
                                   .no_body = !ev->body.data && ev->body.len > 0};
    if (wire_properties_read(ev->properties, &p, &ignored) != 0)
        return;
    m->headers = p.headers;
    m->message_id = p.message_id;
    wire_find_string(p.headers, "x-postdate-error", &m->error);
    wire_find_string(p.headers, "x-postdate-intake", &m->intake);
    wire_find_string(p.headers, "x-postdate-routing-key", &m->routing_key);
}

static int wait_confirm(struct walk *w, struct err *e)
{
    int64_t until_ms = clock_monotonic_ms() + ANSWER_MS;
    while (clock_monotonic_ms() < until_ms) {
        struct broker_event ev;
        if (broker_next_event(w->to, &w->arena, 1024, EVENT_MS, &ev, e) != 0)
            return -1;
        if (ev.kind == BROKER_EVENT_RETURN)
            return err_set(e, ERR_REJECT, "no queue is bound to the exchange that it was published to");
        if (ev.kind == BROKER_EVENT_NACK)
            return err_set(e, ERR_BUSY, "RabbitMQ rejected it (nack): is the intake queue full?");
        if (ev.kind == BROKER_EVENT_ACK)
            return 0;
    }
    return err_set(e, ERR_AWAY, "no confirm from RabbitMQ within %d s", ANSWER_MS / 1000);
}

static int publish_again(struct walk *w, const struct rejected_message *m, struct err *e)
{
    if (m->intake.len == 0 || m->no_body)
        return err_set(e, ERR_REJECT, "message %lld: %s; publish it again from your program, then drop it",
                       (long long)m->number,
                       m->no_body ? "it is too large" : "the exchange that it was published to is unknown");
    if (!w->to && (!(w->to = cli_broker_open(w->config, "postdate rejected", ANSWER_MS, e)) ||
                   broker_confirm_select(w->to, e) != 0))
        return -1;
    buf_reset(&w->properties);
    if (reject_headers_undo(m->properties, &w->properties, e) != 0)
        return -1;
    const struct broker_message message = {.exchange = m->intake,
                                           .routing_key = m->routing_key,
                                           .properties = buf_bytes(&w->properties),
                                           .body = m->body,
                                           .mandatory = true};
    return broker_publish(w->to, &message, NULL, e) != 0 ? -1 : wait_confirm(w, e);
}

static int handle(struct walk *w, const struct broker_event *ev, int64_t number, bool *stop, struct err *e)
{
    struct rejected_message m;
    read_message(ev, number, &m);
    enum rejected_action action = w->decide(w->ctx, &m, stop);
    if (action == REJECTED_KEEP)
        return 0;
    if (action == REJECTED_REQUEUE && publish_again(w, &m, e) != 0)
        return -1;
    w->gone++;
    return broker_ack(w->from, ev->tag, false, e);
}

/* Unacknowledged messages are requeued when the connection ends. */
static int walk_queue(struct walk *w, struct err *e)
{
    uint32_t count;
    bool stop = false;
    if (broker_look_at_queue(w->from, broker_names.rejected, &count, NULL, e) != 0)
        return -1;
    if (count > 0 && broker_consume(w->from, broker_names.rejected, "rejected", 0, e) != 0)
        return -1;
    int64_t heard_ms = clock_monotonic_ms();
    for (int64_t number = 1; number <= count && !stop;) {
        struct broker_event ev;
        arena_reset(&w->arena);
        if (broker_next_event(w->from, &w->arena, MESSAGE_MAX, EVENT_MS, &ev, e) != 0)
            return -1;
        if (ev.kind == BROKER_EVENT_CANCELLED)
            return err_set(e, ERR_NOT_FOUND, "the queue %s is missing", broker_names.rejected);
        if (ev.kind == BROKER_EVENT_DELIVERY) {
            heard_ms = clock_monotonic_ms();
            if (handle(w, &ev, number++, &stop, e) != 0)
                return -1;
        } else if (clock_monotonic_ms() - heard_ms > ANSWER_MS) {
            break; /* another consumer took the rest */
        }
    }
    return broker_flush(w->from, e);
}

/* Reads the messages that were in the queue at the beginning, oldest first. A message to requeue leaves the
 * queue after RabbitMQ has confirmed the copy: a crash may duplicate it, but never loses it. It is published
 * unchanged to its original exchange and routing key, from its headers. ERR_NOT_FOUND: no such queue;
 * ERR_REJECT: a message to requeue has no origin; ERR_PERMISSION, ERR_AWAY, ERR_BUSY: earlier decisions are
 * executed. *gone: so many were published again, or dropped; also after an error. */
static int walk_rejected(const struct config *c, rejected_decide *decide, void *ctx, int64_t *gone,
                         struct err *e)
{
    struct walk w = {.config = c, .decide = decide, .ctx = ctx};
    arena_init(&w.arena, MESSAGE_MAX + ((size_t)1 << 20));
    buf_init(&w.properties, (size_t)1 << 20);
    w.from = cli_broker_open(c, "postdate rejected", ANSWER_MS, e);
    int rc = w.from ? walk_queue(&w, e) : -1;
    *gone = w.gone;
    broker_close(w.from);
    broker_close(w.to);
    arena_free(&w.arena);
    buf_free(&w.properties);
    return rc;
}

enum verb { VERB_LIST, VERB_SHOW, VERB_REQUEUE, VERB_DROP };

struct order {
    struct cli *cli; /* of walk() */
    enum verb verb;
    bool json, all, dry_run;
    struct bytes reason, routing_key; /* data NULL: any */
    int64_t limit;
    int64_t numbers[NUMBERS_MAX];
    int number_count;
    int64_t matched;
};

/* --- output */

static void print_row(const struct rejected_message *m, bool first)
{
    char key[SHOWN_MAX], id[SHOWN_MAX], error[SHOWN_MAX];
    if (first)
        printf("%6s  %-24s %-24s %s\n", "NUMBER", "ROUTING KEY", "MESSAGE ID", "REASON");
    printf("%6lld  %-24s %-24s %s\n", (long long)m->number, text_show(m->routing_key, 24, key, sizeof key),
           text_show(m->message_id, 24, id, sizeof id),
           text_show(m->error, TEXT_ANY_WIDTH, error, sizeof error));
}

static json_t *make_object(const struct rejected_message *m)
{
    struct wire_properties w = {0};
    json_t *o = json_object();
    json_object_set_new(o, "number", json_integer(m->number));
    json_object_set_new(o, "reason", json_text_value(m->error));
    json_object_set_new(o, "exchange", json_text_value(m->intake));
    json_object_set_new(o, "routing_key", json_text_value(m->routing_key));
    if (wire_properties_read(m->properties, &w, NULL) == 0) {
        json_object_set_new(o, "properties", json_properties_value(&w));
        json_object_set_new(o, "headers", json_table_value(w.headers));
    }
    json_object_set_new(o, "body_bytes", json_integer((json_int_t)m->body.len));
    if (!m->no_body)
        json_object_set_new(o, "body", json_text_value(m->body));
    return o;
}

/* --- decisions */

static bool has_number(const struct order *o, int64_t number)
{
    for (int i = 0; i < o->number_count; i++)
        if (o->numbers[i] == number)
            return true;
    return false;
}

static bool contains(struct bytes text, struct bytes part)
{
    return part.len == 0 || (text.len > 0 && memmem(text.data, text.len, part.data, part.len) != NULL);
}

static bool is_meant(const struct order *o, const struct rejected_message *m)
{
    return (o->number_count == 0 || has_number(o, m->number)) &&
           (o->reason.data == NULL || contains(m->error, o->reason)) &&
           (o->routing_key.data == NULL || glob_matches(o->routing_key, m->routing_key));
}

static enum rejected_action decide(void *ctx, const struct rejected_message *m, bool *stop)
{
    struct order *o = ctx;
    if (!is_meant(o, m))
        return REJECTED_KEEP;
    o->matched++;
    if (o->verb == VERB_LIST && o->json)
        cli_print_json(o->cli, make_object(m), JSON_COMPACT);
    else if (o->verb == VERB_LIST)
        print_row(m, o->matched == 1);
    else if (o->verb == VERB_SHOW && o->json)
        cli_print_json(o->cli, make_object(m), JSON_INDENT(2));
    else if (o->verb == VERB_SHOW) {
        text_print("reason", m->error);
        text_print("exchange", m->intake);
        text_print("routing key", m->routing_key);
        text_print("message id", m->message_id);
        text_print_json("headers", json_table_value(m->headers));
        if (m->no_body)
            printf("body         %zu bytes\n", m->body.len);
        else
            text_print_body(m->body);
    }
    *stop = (o->verb == VERB_LIST && o->matched == o->limit) || cli_output_error() != 0 ||
            (o->number_count > 0 && o->matched == o->number_count);
    return o->dry_run || o->verb < VERB_REQUEUE ? REJECTED_KEEP
           : o->verb == VERB_DROP               ? REJECTED_DROP
                                                : REJECTED_REQUEUE;
}

/* --- the command */

static int walk(struct cli *cli, struct order *o)
{
    static const char *const done[] = {"", "", "requeued", "dropped"};
    struct err e;
    int code = cli_load_config(cli);
    if (code != 0)
        return code;
    int64_t gone = 0;
    o->cli = cli;
    int rc = walk_rejected(&cli->config, decide, o, &gone, &e);
    if (o->verb >= VERB_REQUEUE)
        printf("%lld%s %s\n", (long long)(o->dry_run ? o->matched : gone), o->dry_run ? " would be" : "",
               done[o->verb]);
    if (rc != 0)
        return cli_fail(cli, &e);
    if (o->verb == VERB_LIST && o->matched == o->limit)
        cli_say("the first %lld; --limit shows more", (long long)o->limit);
    else if (o->verb == VERB_LIST && o->matched == 0 && !o->json)
        cli_say("no rejected message%s", o->reason.data || o->routing_key.data ? " matches" : "");
    if (o->number_count > o->matched) {
        int64_t missing = o->number_count - o->matched;
        cli_say("%lld of the numbers %s not there", (long long)missing, missing == 1 ? "is" : "are");
        return o->matched == 0 ? 66 : 1;
    }
    return 0;
}

static int read_numbers(struct cli *cli, struct order *o)
{
    static const struct cli_option number = {"number", .max = INT64_MAX};
    for (int i = 0; i < cli->word_count; i++) {
        if (o->number_count == NUMBERS_MAX)
            return cli_usage(cli, "at most %d numbers", NUMBERS_MAX);
        int64_t *next = &o->numbers[o->number_count];
        int code = cli_take_number(cli, &number, next, cli->words[i]);
        if (code != 0)
            return code;
        o->number_count += !has_number(o, *next);
    }
    return 0;
}

static int run_order(struct cli *cli, void *order)
{
    struct order *o = order;
    o->verb = (enum verb)cli->verb->kind;
    int code = read_numbers(cli, o);
    if (code != 0)
        return code;
    if (o->verb >= VERB_REQUEUE && (o->number_count > 0) + cli_gave(cli, "reason routing-key") + o->all != 1)
        return cli_usage(cli, "give numbers, or filters, or --all");
    return walk(cli, o);
}

static const struct cli_option options[] = {
    {"reason", "TEXT", "with this in its reason", CLI_TAKE(bytes, order, reason)},
    {"routing-key", "K", "with this routing key; * is any run of characters",
     CLI_TAKE(bytes, order, routing_key), .letter = 'k'},
    {"limit", "N", "list at most this many (default 100)", CLI_TAKE(number, order, limit), .max = LIMIT_MAX},
    {"all", NULL, "requeue or drop everything", CLI_TAKE(flag, order, all), .of = "requeue and drop"},
    {"dry-run", NULL, "only count", CLI_TAKE(flag, order, dry_run), .of = "requeue and drop"},
    {"json", NULL, "objects, with the body", CLI_TAKE(flag, order, json)},
    {0},
};

static const struct cli_verb verbs[] = {
    {"list", .run = run_order, 0, 0, "it takes filters, not numbers", VERB_LIST},
    {"show", .run = run_order, 1, 1, "give one number, of `postdate rejected list`", VERB_SHOW},
    {"requeue", .run = run_order, 0, INT_MAX, .kind = VERB_REQUEUE},
    {"drop", .run = run_order, 0, INT_MAX, .kind = VERB_DROP},
    {0},
};

const struct command command_rejected = {
    .name = "rejected",
    .synopsis = "list [FILTERS] [--limit N] [--json]\n"
                "       postdate rejected show NUMBER [--json]\n"
                "       postdate rejected requeue|drop (NUMBER... | FILTERS | --all) [--dry-run]",
    .summary = "Show messages that the intake rejected; publish them again, or drop them",
    .notes = "Reads the queue postdate.rejected over amqp.url. NUMBER is the place in the queue, from 1 for "
             "the\noldest, as list prints it. requeue publishes a message unchanged to the exchange that it "
             "was published to.",
    .options = options,
    .verbs = verbs,
    .choices = "specify an action: list, show, requeue or drop",
    .order_size = sizeof(struct order),
    .initial = &(const struct order){.limit = 100},
};
