/* Recurring schedules. What they are is SQL; this makes a JSON object of options and prints JSON answers. */
#include "core/base/arena.h"
#include "core/base/base64.h"
#include "gateway/cli/fields.h"
#include "gateway/cli/recur/recur_apply.h"
#include "gateway/cli/recur/recur_print.h"
#include "sql/operate/recur.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 500 /* schedules of a list at a time */
#define ONE_NAME "give the name of one schedule"

struct order {
    struct cli_fields f;
    struct recur_apply_options apply;
    bool history;
};

static int take_number(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    int64_t n;
    int code = cli_take_number(cli, o, &n, text);
    return code != 0 ? code : json_object_set_new(cli_object_at(at), "n", json_integer(n));
}

/* The definition of `set` is complete; its body becomes part of it. 0 or the exit code. */
static int finish_definition(struct cli *cli, struct order *w, struct arena *a)
{
    struct bytes body = bytes_of_str(w->f.body != NULL ? w->f.body : "");
    if (json_object_get(w->f.object, "cron") == NULL || json_object_get(w->f.object, "routing_key") == NULL)
        return cli_usage(cli, "set: give --cron and -k ROUTING_KEY");
    if ((w->f.body != NULL) == (w->f.file != NULL))
        return cli_usage(cli, "set: give one of --body TEXT and --file FILE (- for stdin)");
    int code = cli_load_config(cli);
    if (code == 0 && w->f.file != NULL)
        code = cli_read_body(w->f.file, (size_t)cli->config.intake.max_body, a, &body);
    if (code != 0)
        return code;
    cli_fields_join(&w->f);
    if (bytes_is_text(body)) {
        json_object_set_new(w->f.object, "body", json_stringn((const char *)body.data, body.len));
    } else {
        struct buf encoded;
        buf_init(&encoded, body.len * 2 + 8);
        base64_encode(body, &encoded);
        json_object_set_new(w->f.object, "body_base64",
                            json_stringn((const char *)encoded.data, encoded.len));
        buf_free(&encoded);
    }
    return 0;
}

/* *out: the answer, to be released with json_decref. 0 or the exit code. */
static int ask(struct cli *cli, struct recur_request *q, struct arena *a, json_t **out, char *tag)
{
    struct recur_answer answer;
    struct err e = {0};
    char who[RECUR_WHO_SIZE];
    q->via = recur_who(who);
    if (recur_operate(cli->pg, q, a, &answer, &e) != 0)
        return cli_fail(&e);
    if (tag != NULL)
        memcpy(tag, answer.tag, RECUR_TAG_SIZE);
    *out = json_loadb((const char *)answer.text.data, answer.text.len, JSON_DECODE_ANY, NULL);
    return *out != NULL ? 0 : cli_no_memory();
}

static int list(struct cli *cli, const struct order *w, int64_t now_ms)
{
    char last[RECUR_TAG_SIZE] = "", argument[RECUR_TAG_SIZE + 64];
    size_t total = 0;
    int code = 0;
    do {
        struct arena a;
        json_t *page = NULL, *one;
        size_t i;
        snprintf(argument, sizeof argument, "{\"after\":\"%s\",\"limit\":%d}", last, PAGE);
        struct recur_request q = {.operation = RECUR_LIST, .argument = bytes_of_str(argument)};
        arena_init(&a, (size_t)1 << 30);
        code = ask(cli, &q, &a, &page, last);
        arena_free(&a);
        if (total == 0 && json_array_size(page) > 0 && !w->apply.json)
            recur_print_heading();
        json_array_foreach(page, i, one)
        {
            if (w->apply.json)
                cli_print_json(one, JSON_COMPACT);
            else
                recur_print_row(one, now_ms);
        }
        total += json_array_size(page);
        json_decref(page);
    } while (code == 0 && *last != '\0' && cli_output_error() == 0);
    if (code == 0 && total == 0 && !w->apply.json)
        cli_say("there are no schedules");
    return code;
}

/* Notes in `schedule` the next time in its own zone, as PostgreSQL has it. 0 or the exit code. */
static int add_local_time(struct cli *cli, struct bytes name, json_t *schedule, struct arena *a)
{
    struct recur_request q = {
        .operation = RECUR_PREVIEW, .name = name, .argument = bytes_of_str("{\"n\":1}")};
    json_t *times = NULL;
    int code = ask(cli, &q, a, &times, NULL);
    const json_t *next = json_array_get(times, 0), *at = json_object_get(schedule, "next_at");
    if (code == 0 && at != NULL && json_equal(json_object_get(next, "at"), at))
        json_object_set(schedule, "next_local", json_object_get(next, "local"));
    json_decref(times);
    return code;
}

static int print_answer(const struct order *w, const struct recur_request *q, const json_t *answer,
                        int64_t now_ms)
{
    const char *next = json_string_value(json_object_get(answer, "next_at"));
    if (w->apply.json)
        return cli_print_json(answer, q->operation == RECUR_PREVIEW ? JSON_COMPACT : JSON_INDENT(2));
    switch (q->operation) {
    case RECUR_SHOW:
        recur_print_all(answer, now_ms);
        break;
    case RECUR_PREVIEW:
        recur_print_times(answer);
        break;
    case RECUR_RUN:
        puts(json_string_value(answer));
        break;
    case RECUR_SET:
    case RECUR_RESUME:
        cli_say("schedule \"%s\": next at %s", (const char *)q->name.data, next != NULL ? next : "no time");
        break;
    case RECUR_PAUSE:
        cli_say("schedule \"%s\" is paused", (const char *)q->name.data);
        break;
    case RECUR_HISTORY:
        recur_print_history(answer, now_ms);
        break;
    case RECUR_REMOVE:
    case RECUR_LIST:
        cli_say("schedule \"%s\" is removed", (const char *)q->name.data);
    }
    return 0;
}

static int perform(struct cli *cli, struct order *w, struct arena *a)
{
    const enum recur_operation operation = (enum recur_operation)cli->verb->kind;
    struct recur_request q = {.operation = operation};
    json_t *answer = NULL;
    int64_t now_ms = 0;
    int code = operation == RECUR_SET ? finish_definition(cli, w, a) : 0;
    if (code == 0)
        code = cli_open(cli, CLI_SCHEMA_CURRENT);
    if (code == 0)
        code = cli_now(cli, &now_ms);
    if (code != 0)
        return code;
    if (operation == RECUR_LIST)
        return list(cli, w, now_ms);
    if (w->history)
        q.operation = RECUR_HISTORY;
    if (cli->word_count > 0)
        q.name = bytes_of_str(cli->words[0]);
    char *text = json_dumps(cli_object_at(&w->f.object), JSON_COMPACT);
    if (text == NULL)
        return cli_no_memory();
    q.argument = bytes_of_str(text);
    code = ask(cli, &q, a, &answer, NULL);
    if (operation != RECUR_SHOW && operation != RECUR_PREVIEW)
        cli_changed(cli, code == 0);
    if (code == 0 && q.operation == RECUR_SHOW && !w->apply.json)
        code = add_local_time(cli, q.name, answer, a);
    if (code == 0)
        code = print_answer(w, &q, answer, now_ms);
    json_decref(answer);
    free(text);
    return code;
}

static int run(struct cli *cli, void *order)
{
    struct arena a;
    arena_init(&a, (size_t)1 << 30);
    int code = perform(cli, order, &a);
    arena_free(&a);
    return code;
}

/* Of a schedule that is there, its definition says what else counts. */
static int preview(struct cli *cli, void *order)
{
    if (cli_gave(cli, "cron") == (cli->word_count == 1))
        return cli_usage(cli, "preview: give the name of a schedule, or --cron");
    if (cli->word_count == 1 && cli_gave(cli, "dialect zone dst from"))
        return cli_usage(cli, "preview: --dialect, --zone, --dst and --from belong to --cron, not to a name");
    return run(cli, order);
}

static int set(struct cli *cli, void *order)
{
    struct order *w = order;
    if (cli->word_count == 2 && strcmp(cli->words[1], "-") == 0 && w->f.file == NULL)
        w->f.file = "-";
    else if (cli->word_count != 1)
        return cli_usage(cli, "set: " ONE_NAME);
    cli->word_count = 1;
    return run(cli, order);
}

static int apply(struct cli *cli, void *order)
{
    struct order *w = order;
    w->apply.file = cli->words[0];
    return recur_apply_file(cli, &w->apply);
}

#define FIELD CLI_TAKE(field, order, f.object)
#define BOTH "set and preview"
static const struct cli_option options[] = {
    {"cron", "E", "five to seven fields, @every 90s, @daily: '0 9 * * mon-fri'", FIELD, .of = BOTH},
    {"dialect", "D", "day of week 1 is Monday: cron (as Spring); or Sunday: quartz", FIELD, .of = BOTH},
    {"zone", "Z", "time zone, such as Europe/Berlin (default: UTC)", FIELD, .of = BOTH},
    {"routing-key", "K", "where its messages go", FIELD, .letter = 'k', .of = "set"},
    {"exchange", "E", "delivery exchange (default: delivery.exchange)", FIELD, .of = "set"},
    {.more = cli_content_options},
    {"missed", "X", "what was missed: one (default: the last), all (at most 100), none", FIELD, .of = "set"},
    {"grace", "D", "what is later counts as missed (default: 1m)", FIELD, .of = "set"},
    {"jitter", "D", "later by up to this, the same for all who ask (default: 0s)", FIELD, .of = "set"},
    {"dst", "X", "a fixed time that the clock leaves out: run (right after it), skip", FIELD, .of = BOTH},
    {"overlap", "X", "while the one before waits: allow (default), skip", FIELD, .of = "set"},
    {"from", "T", "not before", FIELD, .of = BOTH},
    {"until", "T",
     "not after: 2026-11-22T08:00:00Z" CLI_HELP_LINE
     "What a set leaves out has its default, whatever it was before.",
     FIELD, .of = "set"},
    {"number", "N", "of preview: how many times (default: 10)", take_number,
     .offset = offsetof(struct order, f.object), .letter = 'n', .max = 1000, .of = "preview"},
    {"history", NULL, "of show: who changed what, and when", CLI_TAKE(flag, order, history), .of = "show"},
    {"prefix", "P", "of apply: only names that begin with this", CLI_TAKE(text, order, apply.prefix),
     .of = "apply"},
    {"dry-run", NULL, "of apply: only say what differs", CLI_TAKE(flag, order, apply.dry_run), .of = "apply"},
    {"json", NULL, "of list, show, preview and apply", CLI_TAKE(flag, order, apply.json),
     .of = "list, show, preview and apply"},
    {0},
};

static const struct cli_verb verbs[] = {
    {"set", .run = set, 1, 2, ONE_NAME, RECUR_SET},
    {"list", .run = run, 0, 0, "it takes no name", RECUR_LIST, .cells = CLI_CELLS_EACH},
    {"show", .run = run, 1, 1, ONE_NAME, RECUR_SHOW},
    {"pause", .run = run, 1, 1, ONE_NAME, RECUR_PAUSE},
    {"resume", .run = run, 1, 1, ONE_NAME, RECUR_RESUME},
    {"remove", .run = run, 1, 1, ONE_NAME, RECUR_REMOVE},
    {"run", .run = run, 1, 1, ONE_NAME, RECUR_RUN},
    {"preview", .run = preview, 0, 1, "give the name of a schedule, or --cron", RECUR_PREVIEW},
    {"apply", .run = apply, 1, 1, "give one file, or - for stdin"},
    {0},
};

const struct command command_recur = {
    .name = "recur",
    .synopsis =
        "set NAME --cron EXPRESSION -k ROUTING_KEY (--body S|--file F|-) [OPTIONS]\n"
        "       postdate recur list|show|pause|resume|remove|run NAME [--json]\n"
        "       postdate recur preview NAME | --cron EXPRESSION [--dialect D] [--zone Z] [-n 10] [--json]\n"
        "       postdate recur apply FILE [--prefix P] [--dry-run] [--json]",
    .summary = "Schedules that recur: set, list, pause, preview them",
    .options = options,
    .verbs = verbs,
    .choices = "say set, list, show, pause, resume, remove, run, preview or apply first",
    .order_size = sizeof(struct order),
    .close = cli_fields_close,
    .has_content = true,
};
