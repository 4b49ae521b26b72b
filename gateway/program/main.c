/* postdated: the gateway daemon. Reads its options and the configuration; the supervisor does the rest. */
#include "core/base/names.h"
#include "core/base/version.h"
#include "gateway/config/journal.h"
#include "gateway/config/secrets.h"
#include "gateway/json/json_memory.h"
#include "gateway/program/supervisor.h"
#include "gateway/runtime/daemon.h"
#include "gateway/runtime/log.h"
#include "sql/connection/pg.h"

#include <errno.h>
#include <getopt.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define STACK_BYTES ((size_t)8 << 20) /* of each thread */

static const char usage[] =
    "Usage: postdated [-c FILE] [--once | --check-config]\n"
    "\n"
    "The Postdate gateway: consumes delayed messages from RabbitMQ, stores them in PostgreSQL, and publishes "
    "each when it is due.\n"
    "\n"
    "  -c, --config FILE       configuration (else $POSTDATE_CONFIG, /etc/postdate/postdate.conf, defaults)\n"
    "      --once              process pending work once, without HTTP, and exit (postdate feed starts it)\n"
    "      --check-config      report every mistake of the configuration and exit\n"
    "      --print-config-sample  print every option with its default\n"
    "      --help, --version\n"
    "\n"
    "Runs in the foreground and logs to stderr. SIGTERM or SIGINT: release messages that are not due, finish "
    "those in\nflight, exit 0; a second signal exits at once. SIGHUP: read the log settings again.\n"
    "\n"
    "Exit: 0 stopped as asked, or --once is done; 1 not all was released, 64 usage, 70 internal error,\n"
    "75 at a limit, 77 permission, 78 configuration, address in use or schema; with --once also 69 a server\n"
    "was unavailable for 60 s, 75 no progress for 60 s.\n";

static void say_warning(void *ctx, const char *text)
{
    (void)ctx;
    fprintf(stderr, "%spostdated: %s\n", journal_priority(LOG_LEVEL_WARNING), text);
}

static void say_mistake(void *ctx, enum err_kind kind, const char *text)
{
    (void)ctx, (void)kind;
    fprintf(stderr, "%spostdated: %s\n", journal_priority(LOG_LEVEL_ERROR), text);
}

/* Root becomes the service's user, as peer authentication wants it; once it has read the configuration, which
 * may be closed to that user. With one thread: all have the same user. 0, or the exit code. */
static int leave_root(const struct config *config)
{
    const struct passwd *user = pg_url_service_user(config->postgres.url);
    int parent_died = 0;
    if (user == NULL)
        return 0;
    prctl(PR_GET_PDEATHSIG, &parent_died);
    if (initgroups(user->pw_name, user->pw_gid) == 0 && setgid(user->pw_gid) == 0 &&
        setuid(user->pw_uid) == 0) {
        prctl(PR_SET_PDEATHSIG, (long)parent_died); /* another user has none */
        return 0;
    }
    const int why = errno;
    fprintf(stderr, "%spostdated: root cannot become the user %s: %s\n", journal_priority(LOG_LEVEL_ERROR),
            user->pw_name, strerror(why));
    return 77;
}

/* -1: go on; else the exit code to leave with. */
static int read_options(struct supervisor_options *o, int argc, char **argv, bool *check)
{
    static const struct option options[] = {{"config", required_argument, NULL, 'c'},
                                            {"once", no_argument, NULL, 'o'},
                                            {"check-config", no_argument, NULL, 'k'},
                                            {"print-config-sample", no_argument, NULL, 'p'},
                                            {"help", no_argument, NULL, 'h'},
                                            {"version", no_argument, NULL, 'V'},
                                            {0}};
    for (int c; (c = getopt_long(argc, argv, "c:", options, NULL)) != -1;) {
        switch (c) {
        case 'c':
            o->config_path = optarg;
            break;
        case 'o':
            o->once = true;
            break;
        case 'k':
            *check = true;
            break;
        case 'p':
            config_print_sample(stdout);
            return 0;
        case 'h':
            fputs(usage, stdout);
            return 0;
        case 'V':
            printf("postdated %s\n", version_string);
            return 0;
        default:
            fputs("try: postdated --help\n", stderr);
            return 64;
        }
    }
    if (optind == argc)
        return -1;
    fprintf(stderr, "%spostdated: unexpected argument '%s'; try: postdated --help\n",
            journal_priority(LOG_LEVEL_ERROR), argv[optind]);
    return 64;
}

/* 0, or the exit code. */
static int load(struct config *config, struct cells *cells, const char *path)
{
    struct config_report report = {.mistake = say_mistake, .warning = say_warning};
    struct err e = {0};
    if (config_load(config, path, &report, &e) != 0)
        return err_exit_code(&e);
    if (config->cells.file == NULL || cells_load(cells, config->cells.file, &report, &e) == 0)
        return 0;
    config_free(config);
    return err_exit_code(&e);
}

static int run(const struct supervisor_options *o)
{
    const struct config *config = o->config;
    int code = leave_root(config);
    if (code != 0)
        return code;
    log_setup(config->log.level, config->log.json, config->log.audit);
    secrets_allow_dumps(config->log.core_dumps);
    service_open();
    signals_block();
    /* The client library reads nested headers recursively: 26,000 levels fit into a frame, and took between 2
     * and 4 MiB. The default comes from `ulimit -s`, where "unlimited" means 2 MiB. */
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, STACK_BYTES) != 0 ||
        pthread_setattr_default_np(&attributes) != 0)
        log_warning("threads cannot have stacks of %zu MiB", STACK_BYTES >> 20);
    pthread_attr_destroy(&attributes);
    return supervisor_run(o);
}

/* As programs end that do not handle it, so that a shell's loop ends, too. */
static void die_of(int sig)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, sig);
    signal(sig, SIG_DFL);
    raise(sig);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

int main(int argc, char **argv)
{
    struct config config = {0};
    struct cells cells = {.count = 0};
    struct supervisor_options o = {.config = &config};
    bool check = false;
    secrets_allow_dumps(false);
    pg_set_defaults();
    json_memory_open();
    int code = read_options(&o, argc, argv, &check);
    if (code >= 0)
        return code;
    code = load(&config, &cells, o.config_path);
    if (code != 0)
        return code;
    o.cells = cells.count > 0 ? &cells : NULL;
    names_set_prefix(config.amqp.prefix);
    names_set_intake(config.intake.queue);
    if (check)
        printf("configuration is fine%s%s\n", config.source ? ": " : " (defaults and environment)",
               config.source ? config.source : "");
    else
        code = run(&o);
    cells_free(&cells);
    config_free(&config);
    if (code < 0)
        die_of(-code);
    return code;
}
