/* Recurring schedules, which SQL implements: makes a JSON object from options and prints JSON answers. */
#include "core/base/timestamp.h"
#include "gateway/cli/cli.h"
#include "gateway/cli/fields.h"
#include "gateway/cli/recur/yaml_json.h"
#include "gateway/cli/text.h"
#include "gateway/json/json_message.h"
#include "sql/operate/ask.h"
#include "sql/operate/recur.h"

#include <jansson.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEFT_OUT_MAX 100 /* counting ends there */
#define LEFT_OUT_SIZE 60

/* "in 14 min"; "" where the field is null. */
static const char *when_of(const json_t *o, const char *field, int64_t now_ms, char out[CLI_WHEN_SIZE])
{
    int64_t ms;
    out[0] = '\0';
    if (timestamp_parse(text_of(o, field), &ms, NULL) == 0)
        cli_format_when(ms, now_ms, out);
    return out;
}

/* "paused", "in 3 h", "over", or why there is none, or none will be sent. */
static const char *next_of(const json_t *o, int64_t now_ms, char out[CLI_WHEN_SIZE])
{
    if (json_is_true(json_object_get(o, "paused")))
        return "paused";
    if (strcmp(text_of(o, "held_by"), "overlap") == 0)
        return "left out";
    if (json_is_string(json_object_get(o, "error")))
        return "error";
    return *when_of(o, "next_at", now_ms, out) != '\0' ? out : "over";
}

static const char *last_of(const json_t *o, int64_t now_ms, char *out, size_t size)
{
    char when[CLI_WHEN_SIZE];
    if (*when_of(o, "last_at", now_ms, when) == '\0')
        return "never";
    const json_t *late = json_object_get(o, "last_lateness_ms");
    int n = snprintf(out, size, "%s, %s", when,
                     *text_of(o, "last_state") != '\0' ? text_of(o, "last_state") : "gone");
    if (strcmp(text_of(o, "last_state"), "delivered") == 0 && json_is_number(late) && n > 0 &&
        (size_t)n < size)
        snprintf(out + n, size - (size_t)n, " %.0f ms late", json_number_value(late));
    return out;
}

/* ", 12 left out since"; 100 are that many or more. */
static const char *left_out_of(const json_t *o, char out[LEFT_OUT_SIZE])
{
    long long n = json_integer_value(json_object_get(o, "left_out"));
    out[0] = '\0';
    if (n > 0)
        snprintf(out, LEFT_OUT_SIZE, ", %lld%s left out since", n, n >= LEFT_OUT_MAX ? " or more" : "");
    return out;
}

/* One line of the list. */
static void recur_print_row(const json_t *o, int64_t now_ms)
{
    char when[CLI_WHEN_SIZE], last[120], left_out[LEFT_OUT_SIZE];
    printf("%-24s %-24s %-18s %-14s %s%s\n", text_of(o, "name"), text_of(o, "cron"), text_of(o, "zone"),
           next_of(o, now_ms, when), last_of(o, now_ms, last, sizeof last), left_out_of(o, left_out));
}

static void print_line(const char *label, const char *text)
{
    if (*text != '\0')
        text_print(label, bytes_of_str(text));
}

static void print_object(const char *label, json_t *value)
{
    if (json_object_size(value) > 0)
        text_print_json(label, json_incref(value));
}

/* All of one schedule; "next_local": its next time in its own zone. */
static void recur_print_all(const json_t *o, int64_t now_ms)
{
    static const char *const fields[] = {"name",   "cron",  "dialect", "zone", "routing_key",
                                         "missed", "grace", "jitter",  "dst",  "overlap",
                                         "from",   "until", "error"};
    char when[CLI_WHEN_SIZE], last[120], left_out[LEFT_OUT_SIZE];
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        print_line(fields[i], text_of(o, fields[i]));
    text_print_name("exchange", bytes_of_str(text_of(o, "exchange")));
    const char *next = next_of(o, now_ms, when);
    bool has_next = *text_of(o, "next_at") != '\0', has_local = *text_of(o, "next_local") != '\0';
    printf("%-12s %s%s%s%s%s%s\n", "next", text_of(o, "next_local"), has_local ? "  " : "",
           text_of(o, "next_at"), has_next ? " (" : "", next, has_next ? ")" : "");
    print_line("next id", text_of(o, "next_id"));
    printf("%-12s %s%s\n", "last", last_of(o, now_ms, last, sizeof last), left_out_of(o, left_out));
    if (strcmp(text_of(o, "held_by"), "overlap") == 0)
        printf("%-12s the last occurrence, which is %s: until it is done, further occurrences are left out\n",
               "held by", text_of(o, "last_state"));
    print_line("last id", text_of(o, "last_id"));
    printf("%-12s %s by %s\n", "changed", when_of(o, "changed_at", now_ms, when), text_of(o, "changed_by"));
    print_object("headers", json_object_get(o, "headers"));
    print_object("properties", json_object_get(o, "properties"));
    print_line("body", text_of(o, "body"));
    print_line("body_base64", text_of(o, "body_base64"));
}

/* "cron: "0 9 * * *" → "0 8 * * *"", a line for each field that differs. */
static void print_difference(const json_t *old, const json_t *new)
{
    const char *field;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t) new, field, v)
    {
        const json_t *before = json_object_get(old, field);
        char *is = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY),
             *was = before != NULL ? json_dumps(before, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
        if (is != NULL && (was == NULL || strcmp(is, was) != 0)) {
            char shown[2][400];
            printf("    %s: %s%s%s\n", field,
                   was != NULL ? text_show(bytes_of_str(was), TEXT_ANY_WIDTH, shown[0], sizeof shown[0]) : "",
                   was != NULL ? " -> " : "",
                   text_show(bytes_of_str(is), TEXT_ANY_WIDTH, shown[1], sizeof shown[1]));
        }
        free(is);
        free(was);
    }
    json_object_foreach((json_t *)(uintptr_t)old, field, v)
    {
        if (json_object_get(new, field) == NULL)
            printf("    %s: is deleted\n", field);
    }
}

/* A line for each field in which two definitions differ. */
static void recur_print_difference(const json_t *old, const json_t *new)
{
    if (json_is_object(old) && json_is_object(new))
        print_difference(old, new);
}

/* Who changed what, an array. */
static void recur_print_history(const json_t *changes, int64_t now_ms)
{
    char when[CLI_WHEN_SIZE], who[200];
    size_t i;
    json_t *one;
    json_array_foreach(changes, i, one)
    {
        const json_t *old = json_object_get(one, "old");
        bool made = strcmp(text_of(one, "what"), "set") == 0 && !json_is_object(old);
        printf("%s  %-14s %-7s by %s%s%s\n", text_of(one, "at"), when_of(one, "at", now_ms, when),
               made ? "made" : text_of(one, "what"),
               text_show(bytes_of_str(text_of(one, "who")), TEXT_ANY_WIDTH, who, sizeof who),
               *text_of(one, "id") != '\0' ? ": " : "", text_of(one, "id"));
        recur_print_difference(old, json_object_get(one, "new"));
    }
}

/* --- The command. */

#define PAGE 500 /* schedules of a list at a time */
#define FILE_BYTES_MAX ((size_t)32 * 1024 * 1024)
#define WHO_SIZE 80
#define ONE_NAME "give the name of one schedule"

struct order {
    struct cli_fields f;
    const char *prefix;
    bool history, dry_run, json;
    struct buf converted; /* of apply: a YAML file as JSON; and its content */
    struct bytes definitions;
};

static void close_order(void *order)
{
    struct order *w = order;
    buf_free(&w->converted);
    cli_fields_close(order);
}

static bool begins_as_json(struct bytes text)
{
    size_t i = 0;
    while (i < text.len && strchr(" \t\r\n", text.data[i]) != NULL && text.data[i] != '\0')
        i++;
    return i < text.len && text.data[i] == '{';
}

/* The text of a file as JSON: YAML is turned into it, JSON stays as it is. json is where to put the former.
 */
static int read_definitions(struct bytes text, struct buf *json, struct bytes *out, struct err *e)
{
    json_error_t where;
    *out = text;
    if (!begins_as_json(text)) {
        if (yaml_to_json(text, json, e) != 0)
            return -1;
        *out = buf_bytes(json);
    }
    /* Of a number only the syntax is checked: PostgreSQL rejects too large ones in headers, and keeps those
     * in a body. */
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL;
    json_t *checked = json_loadb((const char *)out->data, out->len, flags, &where);
    if (checked == NULL)
        return out->data == text.data ? err_set(e, ERR_REJECT, "line %d: %s", where.line, where.text)
                                      : err_set(e, ERR_REJECT, "%s", where.text);
    json_decref(checked);
    return 0;
}

static int read_file(struct cli *cli, struct order *w)
{
    const char *path = cli->words[0];
    struct bytes text;
    struct err e = {0};
    buf_init(&w->converted, FILE_BYTES_MAX * 4);
    int code = cli_read_file(cli, path, FILE_BYTES_MAX, "a file of schedules may have", &cli->arena, &text);
    if (code == 0 && read_definitions(text, &w->converted, &w->definitions, &e) != 0) {
        err_wrap(&e, "%s", path);
        code = cli_fail(cli, &e);
    }
    return code;
}

/* The definition is complete; its body becomes part of it. 0 or the exit code. */
static int check_set(struct cli *cli, struct order *w)
{
    struct bytes body = bytes_of_str(w->f.body != NULL ? w->f.body : "");
    if (cli->word_count == 2 && strcmp(cli->words[1], "-") == 0 && w->f.file == NULL)
        w->f.file = "-";
    else if (cli->word_count != 1)
        return cli_usage(cli, "set: " ONE_NAME);
    if (json_object_get(w->f.object, "cron") == NULL || json_object_get(w->f.object, "routing_key") == NULL)
        return cli_usage(cli, "set: give --cron and -k ROUTING_KEY");
    if ((w->f.body != NULL) == (w->f.file != NULL))
        return cli_usage(cli, "set: give one of --body TEXT and --file FILE (- for stdin)");
    int code = cli_load_config(cli);
    if (code == 0 && w->f.file != NULL)
        code = cli_read_body(cli, w->f.file, (size_t)cli->config.intake.max_body, &cli->arena, &body);
    if (code != 0)
        return code;
    cli_fields_join(&w->f);
    json_body_set(w->f.object, body);
    return 0;
}

/* Of a schedule that is there, its definition says what else counts. */
static int check_preview(struct cli *cli)
{
    if (cli_gave(cli, "cron") == (cli->word_count == 1))
        return cli_usage(cli, "preview: give the name of a schedule, or --cron");
    if (cli->word_count == 1 && cli_gave(cli, "dialect zone dst from"))
        return cli_usage(cli, "preview: --dialect, --zone, --dst and --from belong to --cron, not to a name");
    return 0;
}

static int check(struct cli *cli, void *order)
{
    const char *verb = cli->verb->name;
    return strcmp(verb, "set") == 0       ? check_set(cli, order)
           : strcmp(verb, "preview") == 0 ? check_preview(cli)
           : strcmp(verb, "apply") == 0   ? read_file(cli, order)
                                          : 0;
}

/* For whom this program acts, as the history says it: "postdate recur (anna)". */
static const char *name_user(char out[WHO_SIZE])
{
    const struct passwd *user = getpwuid(getuid());
    snprintf(out, WHO_SIZE, "postdate recur (%.50s)", user != NULL ? user->pw_name : "unknown user");
    return out;
}

/* *out: the answer, to be released with json_decref. 0 or the exit code. */
static int ask_for(struct cli *cli, struct ask_request *q, json_t **out, char *tag)
{
    struct ask_answer answer;
    struct err e = {0};
    char who[WHO_SIZE];
    q->via = name_user(who);
    int rc = ask_noun(cli->pg, q, &cli->arena, &answer, &e);
    q->via = NULL;
    if (rc != 0)
        return cli_fail(cli, &e);
    if (tag != NULL)
        memcpy(tag, answer.tag, ASK_TAG_SIZE);
    *out = json_loadb((const char *)answer.text.data, answer.text.len, JSON_DECODE_ANY, NULL);
    return *out != NULL ? 0 : cli_no_memory(cli);
}

static int list(struct cli *cli, void *order)
{
    const struct order *w = order;
    char last[ASK_TAG_SIZE] = "", argument[ASK_TAG_SIZE + 64];
    size_t total = 0;
    int code = 0;
    do {
        json_t *page = NULL, *one;
        size_t i;
        snprintf(argument, sizeof argument, "{\"after\":\"%s\",\"limit\":%d}", last, PAGE);
        struct ask_request q = {.operation = "list", .reads = true, .argument = bytes_of_str(argument)};
        arena_reset(&cli->arena);
        code = ask_for(cli, &q, &page, last);
        if (total == 0 && json_array_size(page) > 0 && !w->json)
            printf("%-24s %-24s %-18s %-14s %s\n", "NAME", "CRON", "ZONE", "NEXT", "LAST");
        json_array_foreach(page, i, one)
        {
            if (w->json)
                cli_print_json(cli, json_incref(one), JSON_COMPACT);
            else
                recur_print_row(one, cli->now_ms);
        }
        total += json_array_size(page);
        json_decref(page);
    } while (code == 0 && *last != '\0' && cli_output_error() == 0);
    if (code == 0 && total == 0 && !w->json)
        cli_say("there are no schedules");
    return code;
}

/* A file for apply, with the database's text: a number that a double cannot represent is kept. */
static int export(struct cli *cli, void *order)
{
    const struct order *w = order;
    char last[ASK_TAG_SIZE] = "", who[WHO_SIZE];
    struct ask_answer answer = {0};
    struct err e = {0};
    int code = 0;
    fputs("{\"schedules\": {", stdout);
    for (const char *between = "\n"; cli_output_error() == 0; between = ",\n") {
        json_t *from = json_pack("{s:s, s:s}", "prefix", w->prefix != NULL ? w->prefix : "", "after", last);
        char *argument = from != NULL ? json_dumps(from, JSON_COMPACT) : NULL;
        struct ask_request q = {
            .operation = "export", .reads = true, .argument = bytes_of_str(argument), .via = name_user(who)};
        arena_reset(&cli->arena);
        if (argument == NULL)
            code = cli_no_memory(cli);
        else if (ask_noun(cli->pg, &q, &cli->arena, &answer, &e) != 0)
            code = cli_fail(cli, &e);
        json_decref(from);
        free(argument);
        if (code != 0 || answer.text.len == 0)
            break;
        fputs(between, stdout);
        cli_print_object(cli, answer.text);
        memcpy(last, answer.tag, sizeof last);
    }
    if (code == 0)
        puts("\n}}");
    return code;
}

/* Notes in `schedule` the next time in its own zone, as PostgreSQL has it. 0 or the exit code. */
static int add_local_time(struct cli *cli, struct bytes name, json_t *schedule)
{
    struct ask_request q = {
        .operation = "preview", .reads = true, .name = name, .argument = bytes_of_str("{\"n\":1}")};
    json_t *times = NULL;
    int code = ask_for(cli, &q, &times, NULL);
    const json_t *next = json_array_get(times, 0), *at = json_object_get(schedule, "next_at");
    if (code == 0 && at != NULL && json_equal(json_object_get(next, "at"), at))
        json_object_set(schedule, "next_local", json_object_get(next, "local"));
    json_decref(times);
    return code;
}

static int print_answer(struct cli *cli, const struct order *w, const struct ask_request *q, json_t *answer)
{
    const char *next = json_string_value(json_object_get(answer, "next_at")), *verb = q->operation,
               *name = (const char *)q->name.data;
    bool preview = strcmp(verb, "preview") == 0;
    if (w->json)
        return cli_print_json(cli, json_incref(answer), preview ? JSON_COMPACT : JSON_INDENT(2));
    if (preview) {
        /* The next times, an array. */
        size_t i;
        json_t *one;
        json_array_foreach(answer, i, one)
        {
            const char *mark = text_of(one, "mark");
            printf("%s  %s%s%s\n", text_of(one, "local"), text_of(one, "at"), *mark != '\0' ? "  " : "",
                   mark);
        }
        if (json_array_size(answer) == 0)
            cli_say(q->name.data != NULL ? "schedule \"%s\" has ended: no time follows" : "no time follows%s",
                    q->name.data != NULL ? (const char *)q->name.data : "");
        return 0;
    }
    if (strcmp(verb, "show") == 0)
        recur_print_all(answer, cli->now_ms);
    else if (strcmp(verb, "run") == 0)
        puts(json_string_value(answer));
    else if (strcmp(verb, "history") == 0)
        recur_print_history(answer, cli->now_ms);
    else if (strcmp(verb, "set") == 0 || strcmp(verb, "resume") == 0)
        cli_say("schedule \"%s\": next at %s", name, next != NULL ? next : "no time");
    else
        cli_say("schedule \"%s\" is %sd", name, verb);
    return 0;
}

static int run(struct cli *cli, void *order)
{
    struct order *w = order;
    const char *verb = cli->verb->name;
    bool reads = strcmp(verb, "show") == 0 || strcmp(verb, "preview") == 0;
    struct ask_request q = {.operation = w->history ? "history" : verb, .reads = reads};
    char *text = json_dumps(cli_object_at(&w->f.object), JSON_COMPACT);
    json_t *answer = NULL;
    if (text == NULL)
        return cli_no_memory(cli);
    if (cli->word_count > 0)
        q.name = bytes_of_str(cli->words[0]);
    q.argument = bytes_of_str(text);
    int code = ask_for(cli, &q, &answer, NULL);
    if (!reads)
        cli_changed(cli, code == 0);
    if (code == 0 && strcmp(q.operation, "show") == 0 && !w->json)
        code = add_local_time(cli, q.name, answer);
    if (code == 0)
        code = print_answer(cli, w, &q, answer);
    json_decref(answer);
    free(text);
    return code;
}

static void print_changes(const json_t *changes, const struct order *o)
{
    int count[3] = {0};
    size_t i;
    json_t *one;
    json_array_foreach(changes, i, one)
    {
        const char *change = json_string_value(json_object_get(one, "change"));
        count[*change == '+' ? 0 : *change == '~' ? 1 : 2]++;
        printf("%s %s\n", change, json_string_value(json_object_get(one, "name")));
        recur_print_difference(json_object_get(one, "old"), json_object_get(one, "new"));
    }
    if (json_array_size(changes) == 0)
        cli_say("nothing differs");
    else
        cli_say("%d added, %d changed, %d removed%s", count[0], count[1], count[2],
                o->dry_run ? " (a dry run: nothing was changed)" : "");
}

/* The schedules in the database become those of the file. */
static int apply(struct cli *cli, void *order)
{
    const struct order *w = order;
    char who[WHO_SIZE];
    struct bytes answer;
    struct err e = {0};
    const struct recur_apply q = {.schedules = w->definitions,
                                  .prefix = w->prefix != NULL ? w->prefix : "",
                                  .via = name_user(who),
                                  .dry_run = w->dry_run};
    if (recur_apply(cli->pg, &q, &cli->arena, &answer, &e) != 0)
        return cli_fail(cli, &e);
    json_t *changes = json_loadb((const char *)answer.data, answer.len, 0, NULL);
    if (!w->dry_run)
        cli_changed(cli, (int64_t)json_array_size(changes));
    if (changes == NULL)
        return cli_no_memory(cli);
    if (w->json)
        return cli_print_json(cli, changes, JSON_INDENT(2));
    print_changes(changes, w);
    json_decref(changes);
    return 0;
}

#define FIELD CLI_TAKE(field, order, f.object)
#define BOTH "set and preview"
static const struct cli_option options[] = {
    {"cron", "E", "five to seven fields, @every 90s, @daily: '0 9 * * mon-fri'", FIELD, .of = BOTH},
    {"dialect", "D", "day of week 1 is Monday: cron (as Spring); or Sunday: quartz", FIELD, .of = BOTH,
     .words = "cron quartz"},
    {"zone", "Z", "time zone, such as Europe/Berlin (default: UTC)", FIELD, .of = BOTH},
    {"routing-key", "K", "routing key of its messages", FIELD, .letter = 'k', .of = "set"},
    {"exchange", "E", "delivery exchange (default: delivery.exchange)", FIELD, .of = "set"},
    {.more = cli_content_options},
    {"missed", "X", "missed occurrences to deliver: one (default: the last), all (at most 100), none", FIELD,
     .of = "set", .words = "one all none"},
    {"grace", "D", "occurrences later than this are missed (default: 1m)", FIELD, .of = "set"},
    {"jitter", "D", "delay each occurrence by up to D, the same in each preview (default: 0s)", FIELD,
     .of = "set"},
    {"dst", "X", "a fixed time that the clock skips: run (right after it), skip", FIELD, .of = BOTH,
     .words = "run skip"},
    {"overlap", "X", "while the previous one is not done: allow (default), skip", FIELD, .of = "set",
     .words = "allow skip"},
    {"from", "T", "not before", FIELD, .of = BOTH},
    {"until", "T",
     "not after: 2026-11-22T08:00:00Z" CLI_HELP_LINE
     "Options that are not given get their defaults, also when a schedule is set again.",
     FIELD, .of = "set"},
    {"number", "N", "of preview: how many times (default: 10)", FIELD, .field = "n", .letter = 'n',
     .max = 1000, .of = "preview"},
    {"history", NULL, "of show: changes, with time and author", CLI_TAKE(flag, order, history), .of = "show"},
    {"prefix", "P", "only names that begin with this", CLI_TAKE(text, order, prefix),
     .of = "apply and export"},
    {"dry-run", NULL, "of apply: only print the differences", CLI_TAKE(flag, order, dry_run), .of = "apply"},
    {"json", NULL, "of list, show, preview and apply", CLI_TAKE(flag, order, json),
     .of = "list, show, preview and apply"},
    {0},
};

static const struct cli_verb verbs[] = {
    {"set", .run = run, 1, 2, ONE_NAME},
    {"list", .run = list, 0, 0, "it takes no name", .cells = CLI_CELLS_EACH},
    {"show", .run = run, 1, 1, ONE_NAME},
    {"pause", .run = run, 1, 1, ONE_NAME},
    {"resume", .run = run, 1, 1, ONE_NAME},
    {"remove", .run = run, 1, 1, ONE_NAME},
    {"run", .run = run, 1, 1, ONE_NAME},
    {"preview", .run = run, 0, 1, "give the name of a schedule, or --cron"},
    {"apply", .run = apply, 1, 1, "give one file, or - for stdin", .takes_file = true},
    {"export", .run = export, 0, 0, "it takes no name"},
    {0},
};

const struct command command_recur = {
    .name = "recur",
    .synopsis =
        "set NAME --cron EXPRESSION -k ROUTING_KEY (--body S|--file F|-) [OPTIONS]\n"
        "       postdate recur list|show|pause|resume|remove|run NAME [--json]\n"
        "       postdate recur preview NAME | --cron EXPRESSION [--dialect D] [--zone Z] [-n 10] [--json]\n"
        "       postdate recur apply FILE [--prefix P] [--dry-run] [--json]\n"
        "       postdate recur export [--prefix P]",
    .summary = "Set, list, pause and preview recurring schedules",
    .options = options,
    .verbs = verbs,
    .check = check,
    .opens = true,
    .choices = "specify set, list, show, pause, resume, remove, run, preview, apply or export first",
    .order_size = sizeof(struct order),
    .close = close_order,
    .has_content = true,
};
