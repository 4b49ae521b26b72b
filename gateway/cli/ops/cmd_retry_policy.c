/* How often, and after which waits, what consumers refuse goes back to its queue. */
#include "amqp/inspect/inspect.h"
#include "amqp/inspect/policy_trial.h"
#include "core/base/names.h"
#include "gateway/cli/command.h"
#include "gateway/cli/ops/question.h"
#include "gateway/json/json_dead.h"
#include "sql/operate/ask.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int check(struct cli *cli, void *order)
{
    const struct cli_asked *o = order;
    struct bytes word = bytes_of_str(cli->word_count > 0 ? cli->words[0] : "");
    struct retry_policy ignored;
    struct err e;
    if (strcmp(cli->verb->name, "set") == 0 && json_policy_read(o->fields, word, &ignored, &e) != 0)
        return cli_usage(cli, "set: %s", e.text);
    if (strcmp(cli->verb->name, "show") == 0 && (word.len > 255 || word.len == 0 || !bytes_is_text(word)))
        return cli_usage(cli, "show: give the name of a queue (allowed: 1 to 255 bytes of UTF-8)");
    return cli_question_check(cli, order);
}

static const struct sheet_cell columns[] = {
    {"ATTEMPTS", -8, .text = "{attempts}"},
    {"FIRST", 7, .text = "{first}"},
    {"MAX", 7, .text = "{max}"},
    {"FACTOR", -6, .text = "{factor}"},
    {"JITTER", -6, .text = "{jitter}%"},
    {"KEPT", 7, .text = "{keep_dead}"},
    {"ON", 24, .text = "{on:,}||nothing"},
    {"PATTERN", 0, .text = "{pattern}"},
    {0},
};

static const struct sheet_cell lines[] = {
    {"queue", 0, .text = "{queue}"},
    {"policy", 0, .text = "{pattern}{is_default? (the built-in one: no other matches)|}"},
    {"attempts", 0, .text = "{attempts} deliveries in all, then it is dead"},
    {"waits", 0, .text = "{said!}"},
    {"on", 0,
     .text = "{on:,}; dead at once for any other reason||nothing; dead at once for any other reason"},
    {"dead kept", 0, .text = "{keep_dead}"},
    {0},
};

/* Those that are set, and the built-in one. */
static int list(struct cli *cli, void *order)
{
    const struct ask_request q = {.noun = ASK_RETRY_POLICY, .operation = "default", .reads = true, .via = ""};
    struct ask_answer answer;
    struct err e;
    int code = cli_question_run(cli, order);
    if (code != 0)
        return code;
    if (ask_noun(cli->pg, &q, &cli->arena, &answer, &e) != 0)
        return cli_fail(cli, &e);
    json_t *built_in = json_loadb((const char *)answer.text.data, answer.text.len, 0, NULL);
    if (cli_gave(cli, "json"))
        return built_in != NULL ? cli_print_json(cli, built_in, JSON_COMPACT) : cli_no_memory(cli);
    sheet_print_row(columns, built_in, cli->now_ms);
    json_decref(built_in);
    fputs("postdate: the last one is built in: it applies where no other matches\n", stderr);
    return 0;
}

/* What makes RabbitMQ give Postdate what consumers of this queue refuse. */
static void print_commands(const struct inspect_target *target, const char *queue)
{
    const char *vhost = target->vhost;
    struct buf name;
    buf_init(&name, 2048);
    policy_put_name(&name, queue);
    buf_put_u8(&name, '\0');
    const char *pattern = name.failed ? "QUEUE" : (const char *)name.data;
    printf("\nTo let RabbitMQ pass messages that consumers of this queue reject to Postdate, run this as "
           "its\nadministrator (root's `postdate doctor` counts such queues under retries.queues, and names "
           "missing\nsettings). A queue has one policy: if it has one, add these keys to it.\n\n"
           "Quorum queue:\n"
           "rabbitmqctl set_policy -p '%s' --apply-to queues --priority 10 'postdate retry %s' '^%s$' "
           "'{\"dead-letter-exchange\":\"%s\",\"dead-letter-strategy\":\"at-least-once\",\"overflow\":"
           "\"reject-publish\"}'\n\n"
           "Classic queue (at most once: messages rejected while RabbitMQ crashes may be lost):\n"
           "rabbitmqctl set_policy -p '%s' --apply-to queues --priority 10 'postdate retry %s' '^%s$' "
           "'{\"dead-letter-exchange\":\"%s\"}'\n\n",
           vhost, pattern, pattern, broker_names.retry, vhost, pattern, pattern, broker_names.retry);
    printf("Or as arguments, when the queue is declared:\n"
           "quorum   x-queue-type=quorum x-dead-letter-exchange=%s x-dead-letter-strategy=at-least-once "
           "x-overflow=reject-publish\n"
           "classic  x-dead-letter-exchange=%s\n",
           broker_names.retry, broker_names.retry);
    printf("\nThe gateway's user '%s' needs the right to write to the queue, or rejected messages never "
           "return. Add this name to the second of its patterns: %s\nThe first command prints the patterns. "
           "The second sets all three, so keep their contents:\n"
           "rabbitmqctl list_user_permissions '%s'\n"
           "rabbitmqctl set_permissions -p '%s' '%s' …\n",
           target->user, pattern, target->user, vhost, target->user);
    buf_free(&name);
}

static int show(struct cli *cli, void *order)
{
    struct inspect_target target;
    struct err e;
    if (inspect_target(cli->config.amqp.url, &target, &e) != 0)
        return cli_fail(cli, &e);
    int code = cli_question_run(cli, order);
    if (code == 0 && !cli_gave(cli, "json"))
        print_commands(&target, cli->words[0]);
    return code;
}

static int set_field(struct cli *cli, const struct cli_option *o, void *at, json_t *value)
{
    const char *name = o->field != NULL ? o->field : o->name;
    return json_object_set_new(cli_object_at(at), name, value) == 0 ? 0 : cli_no_memory(cli);
}

static int take_number(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    char *end = NULL;
    errno = 0;
    long n = strtol(text, &end, 10);
    bool percent = strcmp(end, "%") == 0 && strcmp(o->name, "jitter") == 0;
    if (end == text || errno != 0 || n < 0 || n > 1000000 || (*end != '\0' && !percent))
        return cli_usage(cli, "--%s: \"%s\" is no whole number", o->name, text);
    return set_field(cli, o, at, json_integer(n));
}

static int take_factor(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    char *end = NULL;
    double factor = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(factor)
               ? set_field(cli, o, at, json_real(factor))
               : cli_usage(cli, "--%s: \"%s\" is no number (allowed: 1 to 100)", o->name, text);
}

static int take_wait(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    int64_t ignored;
    int code = cli_take_duration(cli, o, &ignored, text);
    return code == 0 ? set_field(cli, o, at, json_string(text)) : code;
}

static int take_reasons(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    struct err e;
    unsigned on;
    if (retry_policy_parse_on(bytes_of_str(text), &on, &e) != 0)
        return cli_usage(cli, "--%s", e.text);
    json_t *names = json_array();
    for (unsigned r = DEATH_REJECTED; r <= DEATH_MAXLEN; r *= 2)
        if (on & r)
            json_array_append_new(names, json_string(death_reason_name(r)));
    return set_field(cli, o, at, names);
}

static const struct cli_option options[] = {
    {"attempts", "N", "deliveries in all, 1 to 1000 (default 10)", take_number, .of = "set"},
    {"first", "D", "delay before the second delivery (default 1s)", take_wait, .of = "set"},
    {"factor", "F", "factor of each further delay, 1 to 100 (default 2)", take_factor, .of = "set"},
    {"max", "D", "the longest delay (default 1h)", take_wait, .of = "set"},
    {"jitter", "P%", "each delay is shorter or longer by up to this much (default 10%)", take_number,
     .of = "set"},
    {"on", "R,R",
     "reasons to retry: rejected, delivery_limit, expired, maxlen" CLI_HELP_LINE
     "(default rejected,delivery_limit); for others, no retry",
     take_reasons, .of = "set", .words = ",rejected delivery_limit expired maxlen"},
    {"keep-dead", "D", "how long dead letters are kept (default 30d)", take_wait, .field = "keep_dead",
     .of = "set"},
    {"json", NULL, "one JSON object per line, or one", .of = "list and show"},
    {0},
};

#define ONE_PATTERN "give one pattern, in quotes: 'orders.*'"
static const struct cli_verb verbs[] = {
    {"set", .least = 1, .most = 1, .wrong = ONE_PATTERN, CLI_ASKED("retry_policy_set", "pattern", 0)},
    {"list", .wrong = "it takes no argument", .cells = CLI_CELLS_EACH,
     CLI_ASKED_BY(list, "retry_policy_list", "", columns)},
    {"show", .least = 1, .most = 1, .wrong = "give the name of one queue",
     CLI_ASKED_BY(show, "retry_policy_match", "queue", .lines = lines)},
    {"remove", .least = 1, .most = 1, .wrong = ONE_PATTERN, CLI_ASKED("retry_policy_remove", "pattern", 0)},
    {0},
};

const struct command command_retry_policy = {
    .name = "retry-policy",
    .synopsis = "set PATTERN [OPTIONS] | list [--json] | show QUEUE [--json] | remove PATTERN",
    .summary = "Set how often, and after which delays, rejected messages return to their queue",
    .notes =
        "In PATTERN, of queue names, * matches any run of characters; the longest match applies.\nSetting a "
        "policy again replaces it: options that are not given get their defaults.",
    .options = options,
    .verbs = verbs,
    .check = check,
    .opens = true,
    .choices = "specify set, list, show or remove",
    .order_size = sizeof(struct cli_asked),
    .close = cli_question_close,
};
