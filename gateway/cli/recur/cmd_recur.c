/* Recurring schedules. What they are is SQL; this makes a JSON object of options and prints JSON answers. */
#include "core/base/arena.h"
#include "core/base/base64.h"
#include "gateway/cli/fields.h"
#include "gateway/cli/recur/recur_print.h"
#include "sql/operate/recur.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 500 /* schedules of a list at a time */

struct order {
    json_t *object, *headers, *properties;
    const char *body, *file;
    bool json;
};

struct verb {
    const char *name;
    enum recur_operation operation;
    int names;          /* 1: one; 0: none; -1: one or none */
    const char *fields; /* options that it takes, by letter */
};

static const struct verb verbs[] = {
    {"set", RECUR_SET, 1, "zkeExHPtbfmgjdouv"},
    {"list", RECUR_LIST, 0, "J"},
    {"show", RECUR_SHOW, 1, "J"},
    {"pause", RECUR_PAUSE, 1, ""},
    {"resume", RECUR_RESUME, 1, ""},
    {"remove", RECUR_REMOVE, 1, ""},
    {"run", RECUR_RUN, 1, ""},
    {"preview", RECUR_PREVIEW, -1, "eznudJ"},
};

static const struct option options[] = {{"cron", required_argument, NULL, 'e'},
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
static int ask(struct cli *cli, const struct recur_request *q, struct arena *a, json_t **out)
{
    struct bytes text;
    struct err e = {0};
    if (recur_operate(cli->pg, q, a, &text, &e) != 0)
        return cli_fail(&e);
    *out = json_loadb((const char *)text.data, text.len, JSON_DECODE_ANY, NULL);
    return *out != NULL ? 0 : cli_no_memory();
}

static int list(struct cli *cli, const struct order *w, int64_t now_ms)
{
    char last[256] = "", argument[320];
    size_t count = PAGE, total = 0;
    int code = 0;
    while (code == 0 && count == PAGE && cli_output_error() == 0) {
        struct arena a;
        json_t *page = NULL, *one;
        size_t i;
        snprintf(argument, sizeof argument, "{\"after\":\"%s\",\"limit\":%d}", last, PAGE);
        const struct recur_request q = {.operation = RECUR_LIST, .argument = bytes_of_str(argument)};
        arena_init(&a, (size_t)1 << 30);
        code = ask(cli, &q, &a, &page);
        arena_free(&a);
        count = json_array_size(page);
        if (total == 0 && count > 0 && !w->json)
            recur_print_heading();
        json_array_foreach(page, i, one)
        {
            if (w->json)
                cli_print_json(one, JSON_COMPACT);
            else
                recur_print_row(one, now_ms);
            snprintf(last, sizeof last, "%s", json_string_value(json_object_get(one, "name")));
        }
        total += count;
        json_decref(page);
    }
    if (code == 0 && total == 0 && !w->json)
        cli_say("there are no schedules");
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
        cli_say("schedule \"%s\": next at %s", q->name, next != NULL ? next : "no time");
        break;
    case RECUR_PAUSE:
        cli_say("schedule \"%s\" is paused", q->name);
        break;
    case RECUR_REMOVE:
    case RECUR_LIST:
        cli_say("schedule \"%s\" is removed", q->name);
    }
    return 0;
}

static int perform(struct cli *cli, const struct verb *v, const char *name, struct order *w, struct arena *a)
{
    struct recur_request q = {.operation = v->operation, .name = name};
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
    char *text = json_dumps(w->object, JSON_COMPACT);
    if (text == NULL)
        return cli_no_memory();
    q.argument = bytes_of_str(text);
    code = ask(cli, &q, a, &answer);
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
        return cli_usage(cli, v->names ? "%s: give the name of one schedule" : "%s takes no name", v->name);
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
        return cli_usage(cli, "say set, list, show, pause, resume, remove, run or preview first");
    if (v->operation == RECUR_SET && optind < argc && strcmp(argv[argc - 1], "-") == 0 && w->file == NULL) {
        w->file = "-";
        argc--;
    }
    if ((code = check_words(cli, v, argc - optind, w)) != 0)
        return code;
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
    .synopsis = "set NAME --cron EXPRESSION -k ROUTING_KEY (--body S|--file F|-) [OPTIONS]\n"
                "       postdate recur list|show|pause|resume|remove|run NAME [--json]\n"
                "       postdate recur preview NAME | --cron EXPRESSION [--zone Z] [-n 10] [--json]",
    .summary = "Schedules that recur: set, list, pause, preview them",
    .help = "      --cron E        five or six fields, @every 90s, @daily: '0 9 * * mon-fri'\n"
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
            "  -n, --number N      of preview: how many times (default: 10)\n"
            "      --json          of list, show and preview\n",
    .run = run,
};
