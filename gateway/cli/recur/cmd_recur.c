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

struct order {
    json_t *object, *headers, *properties;
    const char *body, *file;
    const char *prefix;
    bool json, history, dry_run;
};

struct verb {
    const char *name;
    enum recur_operation operation;
    int names;          /* 1: one; 0: none; -1: one or none */
    const char *fields; /* options that it takes, by letter */
    bool of_file;       /* what is named is a file */
};

static const struct verb verbs[] = {
    {"set", RECUR_SET, 1, "zkeExHPtbfmgjdouvD", false},
    {"list", RECUR_LIST, 0, "J", false},
    {"show", RECUR_SHOW, 1, "JY", false},
    {"pause", RECUR_PAUSE, 1, "", false},
    {"resume", RECUR_RESUME, 1, "", false},
    {"remove", RECUR_REMOVE, 1, "", false},
    {"run", RECUR_RUN, 1, "", false},
    {"preview", RECUR_PREVIEW, -1, "eznudDJ", false},
    {"apply", RECUR_SET, 1, "NQJ", true},
};

static const struct option options[] = {{"cron", required_argument, NULL, 'e'},
                                        {"dialect", required_argument, NULL, 'D'},
                                        {"zone", required_argument, NULL, 'z'},
                                        {"routing-key", required_argument, NULL, 'k'},
                                        {"exchange", required_argument, NULL, 'E'},
                                        {"header", required_argument, NULL, 'H'},
                                        {"property", required_argument, NULL, 'P'},
                                        {"content-type", required_argument, NULL, 't'},
                                        {"body", required_argument, NULL, 'b'},
                                        {"file", required_argument, NULL, 'f'},
                                        {"missed", required_argument, NULL, 'm'},
                                        {"grace", required_argument, NULL, 'g'},
                                        {"jitter", required_argument, NULL, 'j'},
                                        {"dst", required_argument, NULL, 'd'},
                                        {"overlap", required_argument, NULL, 'o'},
                                        {"from", required_argument, NULL, 'u'},
                                        {"until", required_argument, NULL, 'v'},
                                        {"number", required_argument, NULL, 'n'},
                                        {"dry-run", no_argument, NULL, 'N'},
                                        {"prefix", required_argument, NULL, 'Q'},
                                        {"history", no_argument, NULL, 'Y'},
                                        {"json", no_argument, NULL, 'J'},
                                        CLI_LONG};

/* -1: go on */
static int take_number(const struct cli *cli, json_t *object, const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (*text == '\0' || *end != '\0' || n < 1 || n > 1000)
        return cli_usage(cli, "-n: \"%s\" is not allowed: write a number from 1 to 1000", text);
    json_object_set_new(object, "n", json_integer(n));
    return -1;
}

static const char *option_name(int letter)
{
    for (const struct option *o = options; o->name != NULL; o++)
        if (o->val == letter)
            return o->name;
    return "?";
}

/* -1: go on */
static int take_option(struct cli *cli, int letter, char **argv, struct order *w)
{
    char shown[24];
    switch (letter) {
    case 'J':
        w->json = true;
        return -1;
    case 'N':
        w->dry_run = true;
        return -1;
    case 'Q':
        w->prefix = optarg;
        return -1;
    case 'Y':
        w->history = true;
        return -1;
    case 'n':
        return take_number(cli, w->object, optarg);
    case 'b':
        w->body = optarg;
        return -1;
    case 'f':
        w->file = optarg;
        return -1;
    case 'H':
        return cli_set_pair(cli, w->headers, "--header", optarg);
    case 'P':
        return cli_set_pair(cli, w->properties, "--property", optarg);
    case 't':
        return cli_set_text(cli, w->properties, "content_type", "--content-type", optarg);
    case 'c':
    case 'h':
    case 'V':
    case '?':
    case ':':
        return cli_common_option(cli, letter, argv);
    default:
        snprintf(shown, sizeof shown, "--%s", option_name(letter));
        return cli_set_text(cli, w->object, letter == 'k' ? "routing_key" : option_name(letter), shown,
                            optarg);
    }
}

/* The definition of `set` is complete; its body becomes part of it. 0 or the exit code. */
static int finish_definition(struct cli *cli, struct order *w, struct arena *a)
{
    struct bytes body = bytes_of_str(w->body != NULL ? w->body : "");
    if (json_object_get(w->object, "cron") == NULL || json_object_get(w->object, "routing_key") == NULL)
        return cli_usage(cli, "set: give --cron and -k ROUTING_KEY");
    if ((w->body != NULL) == (w->file != NULL))
        return cli_usage(cli, "set: give one of --body TEXT and --file FILE (- for stdin)");
    int code = cli_load_config(cli);
    if (code == 0 && w->file != NULL)
        code = cli_read_body(w->file, (size_t)cli->config.intake.max_body, a, &body);
    if (code != 0)
        return code;
    if (json_object_size(w->headers) > 0)
        json_object_set(w->object, "headers", w->headers);
    if (json_object_size(w->properties) > 0)
        json_object_set(w->object, "properties", w->properties);
    if (bytes_is_text(body)) {
        json_object_set_new(w->object, "body", json_stringn((const char *)body.data, body.len));
    } else {
        struct buf encoded;
        buf_init(&encoded, body.len * 2 + 8);
        base64_encode(body, &encoded);
        json_object_set_new(w->object, "body_base64", json_stringn((const char *)encoded.data, encoded.len));
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
        if (total == 0 && json_array_size(page) > 0 && !w->json)
            recur_print_heading();
        json_array_foreach(page, i, one)
        {
            if (w->json)
                cli_print_json(one, JSON_COMPACT);
            else
                recur_print_row(one, now_ms);
        }
        total += json_array_size(page);
        json_decref(page);
    } while (code == 0 && *last != '\0' && cli_output_error() == 0);
    if (code == 0 && total == 0 && !w->json)
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
    if (w->json)
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

static int perform(struct cli *cli, const struct verb *v, const char *name, struct order *w, struct arena *a)
{
    struct recur_request q = {.operation = v->operation};
    json_t *answer = NULL;
    int64_t now_ms = 0;
    int code = v->operation == RECUR_SET ? finish_definition(cli, w, a) : 0;
    if (code == 0)
        code = cli_open(cli, CLI_SCHEMA_CURRENT);
    if (code == 0)
        code = cli_now(cli, &now_ms);
    if (code != 0)
        return code;
    if (v->operation == RECUR_LIST)
        return list(cli, w, now_ms);
    if (w->history)
        q.operation = RECUR_HISTORY;
    if (name != NULL)
        q.name = bytes_of_str(name);
    char *text = json_dumps(w->object, JSON_COMPACT);
    if (text == NULL)
        return cli_no_memory();
    q.argument = bytes_of_str(text);
    code = ask(cli, &q, a, &answer, NULL);
    if (v->operation != RECUR_SHOW && v->operation != RECUR_PREVIEW)
        cli_changed(cli, code == 0);
    if (code == 0 && q.operation == RECUR_SHOW && !w->json)
        code = add_local_time(cli, q.name, answer, a);
    if (code == 0)
        code = print_answer(w, &q, answer, now_ms);
    json_decref(answer);
    free(text);
    return code;
}

static const struct verb *find_verb(const char *name)
{
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++)
        if (strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    return NULL;
}

static int check_words(const struct cli *cli, const struct verb *v, int count, const struct order *w)
{
    bool cron = json_object_get(w->object, "cron") != NULL;
    if (v->names >= 0 && count != v->names)
        return cli_usage(cli,
                         v->of_file ? "%s: give one file, or - for stdin"
                         : v->names ? "%s: give the name of one schedule"
                                    : "%s takes no name",
                         v->name);
    if (v->operation == RECUR_PREVIEW && (count > 1 || cron == (count == 1)))
        return cli_usage(cli, "preview: give the name of a schedule, or --cron");
    return 0;
}

static int run_order(struct cli *cli, int argc, char **argv, struct order *w)
{
    const struct verb *v = argc > 1 ? find_verb(argv[1]) : NULL;
    struct arena a;
    int letter, code;
    if (v != NULL) { /* the verb is out of the way of the options */
        argv[1] = argv[0];
        argc--;
        argv++;
    }
    while ((letter = getopt_long(argc, argv, CLI_SHORT "k:n:", options, NULL)) != -1) {
        if (v != NULL && strchr("chV?:", letter) == NULL && strchr(v->fields, letter) == NULL)
            return cli_usage(cli, "%s does not take --%s", v->name, option_name(letter));
        if ((code = take_option(cli, letter, argv, w)) >= 0)
            return code;
    }
    if (v == NULL)
        return cli_unknown(cli, optind < argc ? argv[optind] : "",
                           "set list show pause resume remove run preview apply",
                           "say set, list, show, pause, resume, remove, run, preview or apply first");
    if (v->operation == RECUR_SET && !v->of_file && optind < argc && strcmp(argv[argc - 1], "-") == 0 &&
        w->file == NULL) {
        w->file = "-";
        argc--;
    }
    if ((code = check_words(cli, v, argc - optind, w)) != 0)
        return code;
    if (v->of_file)
        return recur_apply_file(
            cli, &(struct recur_apply_options){
                     .file = argv[optind], .prefix = w->prefix, .dry_run = w->dry_run, .json = w->json});
    arena_init(&a, (size_t)1 << 30);
    code = perform(cli, v, optind < argc ? argv[optind] : NULL, w, &a);
    arena_free(&a);
    return code;
}

static int run(struct cli *cli, int argc, char **argv)
{
    struct order w = {.object = json_object(), .headers = json_object(), .properties = json_object()};
    int code = run_order(cli, argc, argv, &w);
    json_decref(w.object);
    json_decref(w.headers);
    json_decref(w.properties);
    return code;
}

const struct command command_recur = {
    .name = "recur",
    .synopsis =
        "set NAME --cron EXPRESSION -k ROUTING_KEY (--body S|--file F|-) [OPTIONS]\n"
        "       postdate recur list|show|pause|resume|remove|run NAME [--json]\n"
        "       postdate recur preview NAME | --cron EXPRESSION [--dialect D] [--zone Z] [-n 10] [--json]\n"
        "       postdate recur apply FILE [--prefix P] [--dry-run] [--json]",
    .summary = "Schedules that recur: set, list, pause, preview them",
    .help = "      --cron E        five to seven fields, @every 90s, @daily: '0 9 * * mon-fri'\n"
            "      --dialect D     day of week 1 is Monday: cron (as Spring); or Sunday: quartz\n"
            "      --zone Z        time zone, such as Europe/Berlin (default: UTC)\n"
            "  -k, --routing-key K where its messages go\n"
            "      --exchange E    delivery exchange (default: delivery.exchange)\n"
            "      --header N=V    an AMQP header; repeatable\n"
            "      --property N=V  an AMQP property; repeatable\n"
            "      --content-type T\n"
            "      --body S        the body\n"
            "      --file F        the body from a file; - for stdin\n"
            "      --missed X      what was missed: one (default: the last), all (at most 100), none\n"
            "      --grace D       what is later counts as missed (default: 1m)\n"
            "      --jitter D      later by up to this, the same for all who ask (default: 0s)\n"
            "      --dst X         a fixed time that the clock leaves out: run (right after it), skip\n"
            "      --overlap X     while the one before waits: allow (default), skip\n"
            "      --from T        not before\n"
            "      --until T       not after: 2026-11-22T08:00:00Z\n"
            "                      What a set leaves out has its default, whatever it was before.\n"
            "  -n, --number N      of preview: how many times (default: 10)\n"
            "      --history       of show: who changed what, and when\n"
            "      --prefix P      of apply: only names that begin with this\n"
            "      --dry-run       of apply: only say what differs\n"
            "      --json          of list, show, preview and apply\n",
    .run = run,
    .has_content = true,
};
