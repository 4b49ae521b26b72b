/* How often, and after which waits, what consumers refuse goes back to its queue. */
#include "amqp/inspect/inspect.h"
#include "amqp/inspect/policy_probe.h"
#include "core/base/duration.h"
#include "core/message/dead_letter.h"
#include "gateway/cli/cli.h"
#include "gateway/cli/text.h"
#include "gateway/json/json_dead.h"
#include "sql/operate/retry.h"
#include "sql/pipeline/lineage.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_MAX ((size_t)64 * 1024 * 1024)
#define SHOWN_MAX 1100
#define WAITS_SHOWN 12

struct order {
    struct retry_policy policy;
    bool given; /* any of its values */
    bool json;
};

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

static int set(struct cli *cli, const struct order *o, const char *pattern)
{
    struct retry_policy p = o->policy;
    struct err e;
    p.pattern = bytes_of_str(pattern);
    if (retry_policy_check(&p, &e) != 0)
        return cli_usage(cli, "set: %s", e.text);
    int code = cli_open(cli, CLI_SCHEMA_CURRENT);
    if (code == 0)
        cli_changed(cli, 1);
    if (code == 0 && retry_set(cli->pg, &p, &e) != 0)
        code = cli_fail(&e);
    if (code == 0)
        cli_say("retry policy \"%s\" is set; it counts for what is refused from now on", pattern);
    return code;
}

static int remove_policy(struct cli *cli, const char *pattern)
{
    struct err e;
    int code = cli_open(cli, CLI_SCHEMA_CURRENT);
    if (code == 0)
        cli_changed(cli, 1);
    if (code == 0 && retry_remove(cli->pg, bytes_of_str(pattern), &e) != 0)
        code = cli_fail(&e);
    if (code == 0)
        cli_say("retry policy \"%s\" is removed", pattern);
    return code;
}

static void print_row(const struct retry_policy *p)
{
    char first[40], most[40], keep[40], on[64], pattern[SHOWN_MAX];
    printf("%8d %-7s %-7s %6g %5d%% %-7s %-24s %s\n", p->attempts,
           duration_format(p->first_ms, first, sizeof first), duration_format(p->max_ms, most, sizeof most),
           p->factor, p->jitter, duration_format(p->keep_dead_ms, keep, sizeof keep),
           format_reasons(p->on, on), text_show(p->pattern, TEXT_ANY_WIDTH, pattern, sizeof pattern));
}

static int list(struct cli *cli, bool json)
{
    struct retry_policy *policies;
    size_t count = 0;
    struct arena arena;
    struct err e;
    int code = cli_open(cli, CLI_SCHEMA_CURRENT);
    if (code != 0)
        return code;
    arena_init(&arena, LIST_MAX);
    if (lineage_policies(cli->pg, &arena, &policies, &count, &e) != 0)
        code = cli_fail(&e);
    if (code == 0 && !json)
        printf("%8s %-7s %-7s %6s %6s %-7s %-24s %s\n", "ATTEMPTS", "FIRST", "MAX", "FACTOR", "JITTER",
               "KEPT", "ON", "PATTERN");
    for (size_t i = 0; i < count && code == 0 && cli_output_error() == 0; i++) {
        json_auto_t *value = json ? json_policy_value(&policies[i]) : NULL;
        if (json)
            code = cli_print_json(value, JSON_COMPACT);
        else
            print_row(&policies[i]);
    }
    if (code == 0 && !json) {
        print_row(&retry_policy_default);
        fputs("postdate: the last one is built in: it counts where none that was set matches\n", stderr);
    }
    arena_free(&arena);
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
    printf("\nTo let RabbitMQ hand over what consumers of this queue refuse, as its administrator (root's\n"
           "`postdate doctor` counts under retries.queues those that do, and names what is missing).\n"
           "A queue has one policy: if it has one, add these keys to that.\n\n"
           "Quorum queue:\n"
           "rabbitmqctl set_policy -p '%s' --apply-to queues --priority 10 'postdate retry %s' '^%s$' "
           "'{\"dead-letter-exchange\":\"" DEAD_LETTER_EXCHANGE
           "\",\"dead-letter-strategy\":\"at-least-once\",\"overflow\":\"reject-publish\"}'\n\n"
           "Classic queue (at most once: what is refused while RabbitMQ crashes may be lost):\n"
           "rabbitmqctl set_policy -p '%s' --apply-to queues --priority 10 'postdate retry %s' '^%s$' "
           "'{\"dead-letter-exchange\":\"" DEAD_LETTER_EXCHANGE "\"}'\n\n",
           vhost, pattern, pattern, vhost, pattern, pattern);
    puts("Or as arguments, when the queue is declared:\n"
         "quorum   x-queue-type=quorum x-dead-letter-exchange=" DEAD_LETTER_EXCHANGE
         " x-dead-letter-strategy=at-least-once x-overflow=reject-publish\n"
         "classic  x-dead-letter-exchange=" DEAD_LETTER_EXCHANGE);
    printf("\nThe gateway's user '%s' needs the right to write to the queue, or what is refused never comes "
           "back. "
           "Add this name to the second of its patterns: %s\n"
           "The first command prints the patterns. The second sets all three anew, so keep what they name:\n"
           "rabbitmqctl list_user_permissions '%s'\n"
           "rabbitmqctl set_permissions -p '%s' '%s' …\n",
           target->user, pattern, target->user, vhost, target->user);
    buf_free(&name);
}

static void print_match(const struct retry_match *m, const char *queue)
{
    char shown[SHOWN_MAX], text[64];
    printf("%-12s %s\n", "queue", text_show(bytes_of_str(queue), TEXT_ANY_WIDTH, shown, sizeof shown));
    printf("%-12s %s%s\n", "policy", text_show(m->policy.pattern, TEXT_ANY_WIDTH, shown, sizeof shown),
           m->is_default ? " (the built-in one: none that was set matches)" : "");
    printf("%-12s %d deliveries in all, then it is dead\n", "attempts", m->policy.attempts);
    print_waits(&m->policy);
    printf("%-12s %s; dead at once for any other reason\n", "on", format_reasons(m->policy.on, text));
    printf("%-12s %s\n", "dead kept", duration_format(m->policy.keep_dead_ms, text, sizeof text));
}

static int show(struct cli *cli, const char *queue, bool json)
{
    struct inspect_target target;
    struct retry_match m;
    struct arena arena;
    struct err e;
    if (strlen(queue) > 255 || *queue == '\0' || !bytes_is_text(bytes_of_str(queue)))
        return cli_usage(cli, "show: give the name of a queue (allowed: 1 to 255 bytes of UTF-8)");
    int code = cli_open(cli, CLI_SCHEMA_CURRENT);
    if (code != 0)
        return code;
    if (inspect_target(cli->config.amqp.url, &target, &e) != 0)
        return cli_fail(&e);
    arena_init(&arena, LIST_MAX);
    if (retry_match(cli->pg, bytes_of_str(queue), &arena, &m, &e) != 0) {
        code = cli_fail(&e);
    } else if (json) {
        json_auto_t *value = json_match_value(&m, bytes_of_str(queue));
        code = cli_print_json(value, JSON_INDENT(2));
    } else {
        print_match(&m, queue);
        print_commands(&target, queue);
    }
    arena_free(&arena);
    return code;
}

static int run_order(struct cli *cli, const struct order *o, int count, char **words)
{
    const char *verb = count > 0 ? words[0] : "";
    bool sets = strcmp(verb, "set") == 0, lists = strcmp(verb, "list") == 0,
         shows = strcmp(verb, "show") == 0;
    if (!sets && !lists && !shows && strcmp(verb, "remove") != 0)
        return cli_unknown(cli, verb, "set list show remove", "say set, list, show or remove");
    if (!sets && o->given)
        return cli_usage(cli, "the values of a policy belong to set");
    if (o->json && !lists && !shows)
        return cli_usage(cli, "--json belongs to list and show");
    if (count != (lists ? 1 : 2))
        return cli_usage(cli,
                         lists   ? "list takes no argument"
                         : shows ? "show: give the name of one queue"
                                 : "%s: give one pattern, in quotes: 'orders.*'",
                         verb);
    if (sets)
        return set(cli, o, words[1]);
    if (lists)
        return list(cli, o->json);
    return shows ? show(cli, words[1], o->json) : remove_policy(cli, words[1]);
}

static int take_duration(const struct cli *cli, const char *option, int64_t *out)
{
    struct err e;
    return duration_parse(optarg, out, &e) == 0 ? -1 : cli_usage(cli, "%s: %s", option, e.text);
}

/* suffix: an optional sign behind it. */
static int take_number(const struct cli *cli, const char *option, const char *suffix, int *out)
{
    char *end = NULL;
    errno = 0;
    long n = strtol(optarg, &end, 10);
    if (end != optarg && errno == 0 && n >= 0 && n <= 1000000 && (*end == '\0' || strcmp(end, suffix) == 0)) {
        *out = (int)n;
        return -1;
    }
    return cli_usage(cli, "%s: \"%s\" is no whole number", option, optarg);
}

static int take_factor(const struct cli *cli, double *out)
{
    char *end = NULL;
    *out = strtod(optarg, &end);
    return end != optarg && *end == '\0'
               ? -1
               : cli_usage(cli, "--factor: \"%s\" is no number (allowed: 1 to 100)", optarg);
}

/* -1: go on */
static int take_option(struct cli *cli, int option, char **argv, struct order *o)
{
    struct retry_policy *p = &o->policy;
    struct err e;
    if (strchr("afFmJok", option) != NULL)
        o->given = true;
    switch (option) {
    case 'a':
        return take_number(cli, "--attempts", "", &p->attempts);
    case 'f':
        return take_duration(cli, "--first", &p->first_ms);
    case 'F':
        return take_factor(cli, &p->factor);
    case 'm':
        return take_duration(cli, "--max", &p->max_ms);
    case 'J':
        return take_number(cli, "--jitter", "%", &p->jitter);
    case 'o':
        return retry_policy_parse_on(bytes_of_str(optarg), &p->on, &e) == 0 ? -1
                                                                            : cli_usage(cli, "--%s", e.text);
    case 'k':
        return take_duration(cli, "--keep-dead", &p->keep_dead_ms);
    case 'j':
        o->json = true;
        return -1;
    default:
        return cli_common_option(cli, option, argv);
    }
}

static int run(struct cli *cli, int argc, char **argv)
{
    static const struct option options[] = {{"attempts", required_argument, NULL, 'a'},
                                            {"first", required_argument, NULL, 'f'},
                                            {"factor", required_argument, NULL, 'F'},
                                            {"max", required_argument, NULL, 'm'},
                                            {"jitter", required_argument, NULL, 'J'},
                                            {"on", required_argument, NULL, 'o'},
                                            {"keep-dead", required_argument, NULL, 'k'},
                                            {"json", no_argument, NULL, 'j'},
                                            CLI_LONG};
    struct order o = {.policy = retry_policy_default};
    int option, code;
    while ((option = getopt_long(argc, argv, CLI_SHORT, options, NULL)) != -1)
        if ((code = take_option(cli, option, argv, &o)) >= 0)
            return code;
    return run_order(cli, &o, argc - optind, argv + optind);
}

const struct command command_retry_policy = {
    .name = "retry-policy",
    .synopsis = "set PATTERN [OPTIONS] | list [--json] | show QUEUE [--json] | remove PATTERN",
    .summary = "Say how often and after which waits what consumers refuse goes back to its queue",
    .help = "PATTERN is of names of queues, * matches any run of characters; the longest match counts.\n"
            "A policy that is set again is set anew: what is not given has its default.\n\n"
            "      --attempts N    deliveries in all, 1 to 1000 (default 10)\n"
            "      --first D       wait before the second delivery (default 1s)\n"
            "      --factor F      of each further wait, 1 to 100 (default 2)\n"
            "      --max D         the longest wait (default 1h)\n"
            "      --jitter P%     each wait is up to so much shorter or longer (default 10%)\n"
            "      --on R,R        what is retried: rejected, delivery_limit, expired, maxlen\n"
            "                      (default rejected,delivery_limit); the rest is dead at once\n"
            "      --keep-dead D   dead letters are kept so long (default 30d)\n"
            "      --json          one JSON object per line, or one\n",
    .run = run,
};
