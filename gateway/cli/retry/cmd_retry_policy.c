/* How often, and after which waits, what consumers refuse goes back to its queue. */
#include "amqp/inspect/inspect.h"
#include "amqp/inspect/policy_probe.h"
#include "core/base/duration.h"
#include "core/base/names.h"
#include "gateway/cli/command.h"
#include "gateway/cli/text.h"
#include "gateway/json/json_dead.h"
#include "sql/operate/retry.h"
#include "sql/pipeline/lineage.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_MAX 1100
#define WAITS_SHOWN 12

static const char *format_reasons(unsigned on, char out[64])
{
    size_t used = 0;
    snprintf(out, 64, "nothing");
    for (unsigned r = DEATH_REJECTED; r <= DEATH_MAXLEN; r *= 2)
        if (on & r)
            used +=
                (size_t)snprintf(out + used, 64 - used, "%s%s", used > 0 ? "," : "", death_reason_name(r));
    return out;
}

static int check(struct cli *cli, void *order)
{
    const char *word = cli->word_count > 0 ? cli->words[0] : "";
    struct retry_policy *p = order;
    struct err e;
    p->pattern = bytes_of_str(word);
    if (strcmp(cli->verb->name, "set") == 0 && retry_policy_check(p, &e) != 0)
        return cli_usage(cli, "set: %s", e.text);
    if (strcmp(cli->verb->name, "show") == 0 &&
        (strlen(word) > 255 || *word == '\0' || !bytes_is_text(p->pattern)))
        return cli_usage(cli, "show: give the name of a queue (allowed: 1 to 255 bytes of UTF-8)");
    return 0;
}

static int set(struct cli *cli, void *order)
{
    struct err e;
    cli_changed(cli, 1);
    if (retry_set(cli->pg, order, &e) != 0)
        return cli_fail(&e);
    cli_say("retry policy \"%s\" is set; it applies to messages rejected from now on", cli->words[0]);
    return 0;
}

static int remove_policy(struct cli *cli, void *order)
{
    const struct retry_policy *p = order;
    struct err e;
    cli_changed(cli, 1);
    if (retry_remove(cli->pg, p->pattern, &e) != 0)
        return cli_fail(&e);
    cli_say("retry policy \"%s\" is removed", cli->words[0]);
    return 0;
}

static void print_row(const struct retry_policy *p)
{
    char first[40], most[40], keep[40], on[64], pattern[SHOWN_MAX];
    printf("%8d %-7s %-7s %6g %5d%% %-7s %-24s %s\n", p->attempts,
           duration_format(p->first_ms, first, sizeof first), duration_format(p->max_ms, most, sizeof most),
           p->factor, p->jitter, duration_format(p->keep_dead_ms, keep, sizeof keep),
           format_reasons(p->on, on), text_show(p->pattern, TEXT_ANY_WIDTH, pattern, sizeof pattern));
}

static int list(struct cli *cli, void *order)
{
    bool json = cli_gave(cli, "json");
    struct retry_policy *policies;
    size_t count = 0;
    struct err e;
    int code = 0;
    (void)order;
    if (lineage_policies(cli->pg, &cli->arena, &policies, &count, &e) != 0)
        return cli_fail(&e);
    if (!json)
        printf("%8s %-7s %-7s %6s %6s %-7s %-24s %s\n", "ATTEMPTS", "FIRST", "MAX", "FACTOR", "JITTER",
               "KEPT", "ON", "PATTERN");
    for (size_t i = 0; i < count && code == 0 && cli_output_error() == 0; i++) {
        if (json)
            code = cli_print_json(json_policy_value(&policies[i]), JSON_COMPACT);
        else
            print_row(&policies[i]);
    }
    if (code == 0 && json) {
        json_t *built_in = json_policy_value(&retry_policy_default);
        json_object_set_new(built_in, "is_default", json_true());
        code = built_in != NULL ? cli_print_json(built_in, JSON_COMPACT) : cli_no_memory();
    } else if (code == 0) {
        print_row(&retry_policy_default);
        fputs("postdate: the last one is built in: it applies where no other matches\n", stderr);
    }
    return code;
}

/* "1s, 2s, 4s, … 1h" */
static void print_waits(const struct retry_policy *p)
{
    struct retry_policy steady = *p;
    char text[40];
    int waits = p->attempts - 1;
    steady.jitter = 0;
    printf("%-12s", "waits");
    for (int i = 1; i <= waits && i <= WAITS_SHOWN; i++)
        printf("%s %s", i > 1 ? "," : "",
               duration_format(retry_policy_wait_ms(&steady, i, 0), text, sizeof text));
    if (waits > WAITS_SHOWN)
        printf(" … %s", duration_format(retry_policy_wait_ms(&steady, waits, 0), text, sizeof text));
    if (waits == 0)
        printf(" none: the first refusal is the last");
    else if (p->jitter > 0)
        printf(" (each up to %d%% shorter or longer)", p->jitter);
    putchar('\n');
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
    const char *queue = cli->words[0];
    struct inspect_target target;
    struct retry_match m;
    struct err e;
    (void)order;
    if (inspect_target(cli->config.amqp.url, &target, &e) != 0 ||
        retry_match(cli->pg, bytes_of_str(queue), &cli->arena, &m, &e) != 0)
        return cli_fail(&e);
    if (cli_gave(cli, "json"))
        return cli_print_json(json_match_value(&m, bytes_of_str(queue)), JSON_INDENT(2));
    char shown[SHOWN_MAX], text[64];
    text_print("queue", bytes_of_str(queue));
    printf("%-12s %s%s\n", "policy", text_show(m.policy.pattern, TEXT_ANY_WIDTH, shown, sizeof shown),
           m.is_default ? " (the built-in one: no other matches)" : "");
    printf("%-12s %d deliveries in all, then it is dead\n", "attempts", m.policy.attempts);
    print_waits(&m.policy);
    printf("%-12s %s; dead at once for any other reason\n", "on", format_reasons(m.policy.on, text));
    printf("%-12s %s\n", "dead kept", duration_format(m.policy.keep_dead_ms, text, sizeof text));
    print_commands(&target, queue);
    return 0;
}

static int take_number(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    char *end = NULL;
    errno = 0;
    long n = strtol(text, &end, 10);
    bool percent = strcmp(end, "%") == 0 && strcmp(o->name, "jitter") == 0;
    if (end == text || errno != 0 || n < 0 || n > 1000000 || (*end != '\0' && !percent))
        return cli_usage(cli, "--%s: \"%s\" is no whole number", o->name, text);
    *(int *)at = (int)n;
    return 0;
}

static int take_factor(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    char *end = NULL;
    *(double *)at = strtod(text, &end);
    return end != text && *end == '\0'
               ? 0
               : cli_usage(cli, "--%s: \"%s\" is no number (allowed: 1 to 100)", o->name, text);
}

static int take_reasons(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    struct err e;
    (void)o;
    return retry_policy_parse_on(bytes_of_str(text), at, &e) == 0 ? 0 : cli_usage(cli, "--%s", e.text);
}

static const struct cli_option options[] = {
    {"attempts", "N", "deliveries in all, 1 to 1000 (default 10)", take_number,
     .offset = offsetof(struct retry_policy, attempts), .of = "set"},
    {"first", "D", "wait before the second delivery (default 1s)", CLI_TAKE(duration, retry_policy, first_ms),
     .of = "set"},
    {"factor", "F", "of each further wait, 1 to 100 (default 2)", take_factor,
     .offset = offsetof(struct retry_policy, factor), .of = "set"},
    {"max", "D", "the longest wait (default 1h)", CLI_TAKE(duration, retry_policy, max_ms), .of = "set"},
    {"jitter", "P%", "each wait is shorter or longer by up to this much (default 10%)", take_number,
     .offset = offsetof(struct retry_policy, jitter), .of = "set"},
    {"on", "R,R",
     "reasons to retry: rejected, delivery_limit, expired, maxlen" CLI_HELP_LINE
     "(default rejected,delivery_limit); others are dead at once",
     take_reasons, .offset = offsetof(struct retry_policy, on), .of = "set",
     .words = ",rejected delivery_limit expired maxlen"},
    {"keep-dead", "D", "how long dead letters are kept (default 30d)",
     CLI_TAKE(duration, retry_policy, keep_dead_ms), .of = "set"},
    {"json", NULL, "one JSON object per line, or one", .of = "list and show"},
    {0},
};

static const struct cli_verb verbs[] = {
    {"set", .run = set, 1, 1, "give one pattern, in quotes: 'orders.*'"},
    {"list", .run = list, 0, 0, "it takes no argument", .cells = CLI_CELLS_EACH},
    {"show", .run = show, 1, 1, "give the name of one queue"},
    {"remove", .run = remove_policy, 1, 1, "give one pattern, in quotes: 'orders.*'"},
    {0},
};

const struct command command_retry_policy = {
    .name = "retry-policy",
    .synopsis = "set PATTERN [OPTIONS] | list [--json] | show QUEUE [--json] | remove PATTERN",
    .summary = "Set how often, and after which delays, rejected messages return to their queue",
    .notes = "PATTERN matches queue names, * any run of characters; the longest match applies.\nSetting a "
             "policy again replaces it: options that are not given get their defaults.",
    .options = options,
    .verbs = verbs,
    .check = check,
    .opens = true,
    .choices = "specify set, list, show or remove",
    .order_size = sizeof(struct retry_policy),
    .initial = &retry_policy_default,
};
