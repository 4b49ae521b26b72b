/* Advances the end of the window: gateways hand over messages due before it to RabbitMQ. An optimisation that
 * may fail safely, because gateways hold messages that were not handed over. If no gateway runs, this
 * program becomes one that processes pending work and exits. */
#include "core/base/clock.h"
#include "core/base/duration.h"
#include "core/base/timestamp.h"
#include "gateway/cli/command.h"
#include "gateway/cli/progress.h"
#include "sql/operate/lookup.h"
#include "sql/pipeline/claim.h"
#include "sql/pipeline/store.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WINDOW_MIN_MS 1000
#define POLL_MS 200
#define POLL_SHARE 4 /* and at least so many times as long as counting took */
#define STALL_NS INT64_C(10000000000)
#define PROGRAM "postdated"

/* --- without a gateway: this program becomes `postdated --once`, the one beside it, else the one in PATH */

/* The program beside this one; "" if that can't be said. */
static void find_beside(char *out, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", out, size - sizeof PROGRAM);
    out[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(out, '/');
    if (slash)
        memcpy(slash + 1, PROGRAM, sizeof PROGRAM);
}

/* With the same configuration; it logs errors only, for cron sends a mail for each word. Returns if it
 * cannot: the reason, of errno. */
static int become_gateway(struct cli *cli)
{
    char beside[4096], once[] = "--once", option[] = "-c", name[] = PROGRAM;
    char *config_path = cli->config_path ? strdup(cli->config_path) : NULL;
    char *args[] = {name, once, config_path ? option : NULL, config_path, NULL};
    find_beside(beside, sizeof beside);
    pg_close(cli->pg);
    cli->pg = NULL;
    setenv("POSTDATE_LOG_LEVEL", "error", 1);
    fflush(NULL);
    execv(beside, args);
    if (errno == ENOENT)
        execvp(PROGRAM, args);
    int why = errno;
    free(config_path);
    return why;
}

/* --- the window */

struct feed {
    struct cli *cli;
    bool dry_run, verbose;
    int64_t window_ms;
    int64_t started_ms, horizon_ms; /* by the database's clock */
    int64_t waiting, handed;        /* as counted last; counting stops at max_messages */
};

static int count_waiting(struct feed *f)
{
    const struct config *c = &f->cli->config;
    struct err e;
    int code = cli_now(f->cli);
    if (code != 0)
        return code;
    struct claim_waiting q = {.horizon_ms = f->horizon_ms,
                              .floor_ms = f->cli->now_ms + config_least_ahead_ms(c),
                              .accepted_ms = f->started_ms,
                              .most = c->handover.max_messages};
    f->waiting = q.floor_ms < q.horizon_ms ? claim_count_waiting(f->cli->pg, &q, &e) : 0;
    if (f->waiting < 0)
        return cli_fail(f->cli, &e);
    const struct claim_handed handed = {f->cli->now_ms, c->handover.window_ms, c->handover.max_messages};
    bool partly; /* a locked day's are not counted */
    f->handed = claim_count_handed(f->cli->pg, &handed, &partly, &e);
    return f->handed < 0 ? cli_fail(f->cli, &e) : 0;
}

/* Where gateways stop: the fed point, but never beyond their window. */
static int find_horizon(struct feed *f)
{
    int64_t fed_ms, end_ms;
    struct err e;
    int code = cli_now(f->cli);
    if (code != 0)
        return code;
    if (claim_fed_until(f->cli->pg, &fed_ms, &e) != 0)
        return cli_fail(f->cli, &e);
    f->started_ms = f->cli->now_ms;
    end_ms = f->cli->now_ms + f->cli->config.handover.window_ms;
    f->horizon_ms = f->cli->now_ms + f->window_ms;
    if (fed_ms > f->horizon_ms)
        f->horizon_ms = fed_ms;
    if (f->horizon_ms > end_ms)
        f->horizon_ms = end_ms;
    return 0;
}

static int dry_run(struct feed *f)
{
    int64_t most = f->cli->config.handover.max_messages;
    char when[CLI_WHEN_SIZE], time[40];
    int code = count_waiting(f);
    if (code != 0)
        return code;
    int64_t room = f->handed < most ? most - f->handed : 0;
    printf("would hand over  %" PRId64 "%s\n", f->waiting < room ? f->waiting : room,
           f->waiting > room ? ", then handover.max_messages is reached" : "");
    printf("RabbitMQ holds   %" PRId64 " of at most %" PRId64 "\n", f->handed, most);
    printf("window           until %s (%s)\n", timestamp_format(f->horizon_ms, time, sizeof time),
           cli_format_when(f->horizon_ms, f->cli->now_ms, when));
    return 0;
}

/* How it ended, if that is news. */
static void say_end(const struct feed *f, const struct progress *p, int64_t handed_over)
{
    int64_t most = f->cli->config.handover.max_messages;
    char time[40];
    timestamp_format(f->horizon_ms, time, sizeof time);
    if (f->verbose || p->on)
        fprintf(stderr,
                "postdate: fed until %s: %" PRId64 " handed over in %.1f s, %" PRId64
                " wait%s; RabbitMQ holds %" PRId64 " of at most %" PRId64 "\n",
                time, handed_over, progress_seconds(p), f->waiting,
                f->handed >= most ? " (handover.max_messages is reached)" : "", f->handed, most);
}

/* Until nothing is left, RabbitMQ holds the most allowed, there is no progress, or no gateway is alive any
 * more (*gone). */
static int wait_for_gateways(struct feed *f, bool *gone)
{
    int64_t most = f->cli->config.handover.max_messages;
    struct progress p;
    struct err e;
    char time[40];
    int code = count_waiting(f), alive = 1;
    int64_t total = f->waiting, least = total, moved_ns = clock_monotonic_ns();
    progress_start(&p, total);
    p.unit = "messages";
    while (code == 0 && f->waiting > 0 && f->handed < most && clock_monotonic_ns() - moved_ns < STALL_NS) {
        if ((alive = lookup_alive(f->cli->pg, NULL, &e)) <= 0)
            break;
        progress_update(&p, total - f->waiting, total - f->waiting);
        clock_nap_ms(POLL_MS);
        int64_t asked_ns = clock_monotonic_ns();
        code = count_waiting(f);
        int64_t now_ns = clock_monotonic_ns();
        if (f->waiting < least) {
            least = f->waiting;
            moved_ns = now_ns;
        }
        clock_nap_ms(f->waiting > 0 ? (now_ns - asked_ns) * POLL_SHARE / 1000000 : 0);
    }
    progress_clear(&p);
    *gone = code == 0 && alive == 0;
    if (code != 0 || *gone)
        return code;
    if (alive < 0)
        return cli_fail(f->cli, &e);
    if (f->waiting > 0 && f->handed < most)
        fprintf(stderr,
                "postdate: no gateway handed anything over for %d s; %" PRId64
                " messages due before %s wait (nothing is late: gateways deliver them too)\n",
                (int)(STALL_NS / 1000000000), f->waiting, timestamp_format(f->horizon_ms, time, sizeof time));
    else
        say_end(f, &p, total - f->waiting);
    return 0;
}

/* What waits is counted here, what the gateway takes in is not. */
static int run_gateway(struct feed *f)
{
    char time[40];
    timestamp_format(f->horizon_ms, time, sizeof time);
    if ((f->verbose || isatty(STDERR_FILENO)) && count_waiting(f) == 0)
        fprintf(stderr,
                "postdate: fed until %s: no gateway runs, " PROGRAM " --once hands over what waits, %" PRId64
                "; RabbitMQ holds %" PRId64 " of at most %" PRId64 "\n",
                time, f->waiting, f->handed, f->cli->config.handover.max_messages);
    int why = become_gateway(f->cli);
    if (why == ENOENT)
        cli_say_at(LOG_LEVEL_ERROR,
                   "fed until %s, but no gateway runs, and postdated is neither beside postdate nor in PATH: "
                   "messages are handed over when one starts",
                   time);
    else
        cli_say_at(LOG_LEVEL_ERROR, "cannot run " PROGRAM ": %s", strerror(why));
    return 69;
}

static int feed_window(struct feed *f)
{
    struct err e;
    int code;
    bool gone;
    if (f->dry_run)
        return (code = find_horizon(f)) != 0 ? code : dry_run(f);
    if (claim_feed(f->cli->pg, f->window_ms, &e) != 0)
        return cli_fail(f->cli, &e);
    store_wake(f->cli->pg);
    if ((code = find_horizon(f)) != 0)
        return code;
    int alive = lookup_alive(f->cli->pg, NULL, &e);
    if (alive < 0)
        return cli_fail(f->cli, &e);
    if (alive > 0 && ((code = wait_for_gateways(f, &gone)) != 0 || !gone))
        return code;
    return run_gateway(f);
}

static int choose_window(struct feed *f)
{
    char most[40], wanted[40];
    int64_t most_ms = f->cli->config.handover.window_ms;
    if (!cli_gave(f->cli, "window")) {
        f->window_ms = most_ms;
        return 0;
    }
    if (f->window_ms >= WINDOW_MIN_MS && f->window_ms <= most_ms)
        return 0;
    return cli_usage(f->cli, "--window: %s is not between 1s and handover.window, %s",
                     duration_format(f->window_ms, wanted, sizeof wanted),
                     duration_format(most_ms, most, sizeof most));
}

static int run_feed(struct cli *cli, void *order)
{
    struct feed *f = order;
    int code;
    f->cli = cli;
    if ((code = cli_load_config(cli)) != 0 || (code = choose_window(f)) != 0)
        return code;
    if (cli->config.handover.transport == TRANSPORT_TIMER) {
        if (f->verbose || f->dry_run)
            fputs("postdate: nothing to feed: handover.transport is timer, the gateways hold all messages\n",
                  stderr);
        return 0;
    }
    code = cli_open(cli, CLI_SCHEMA_CURRENT);
    return code != 0 ? code : feed_window(f);
}

static const struct cli_option options[] = {
    {"window", "D", "from now on (default and at most: handover.window)",
     CLI_TAKE(duration, feed, window_ms)},
    {"dry-run", NULL, "only print how many would be handed over", CLI_TAKE(flag, feed, dry_run)},
    {"verbose", NULL, "print a summary, even on success", CLI_TAKE(flag, feed, verbose), .letter = 'v'},
    {0},
};

const struct command command_feed = {
    .name = "feed",
    .synopsis = "[--window D] [--dry-run] [-v]",
    .summary = "Hand messages that are due within the window over to RabbitMQ; if no gateway runs, start one "
               "for that",
    .options = options,
    .run = run_feed,
    .order_size = sizeof(struct feed),
};
