#include "gateway/cli/gateway_run.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM "postdated"
#define NOT_FOUND 127 /* as a shell says it */
#define NOT_RUN 126

static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP};
#define PASSED_ON (sizeof passed_on / sizeof passed_on[0])

static volatile sig_atomic_t child, stopped_by;

static void pass_on(int sig)
{
    stopped_by = sig;
    kill(child, SIGTERM);
}

/* Those that are ignored (nohup) stay so. */
static void catch_signals(void)
{
    struct sigaction old, ours = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
    for (size_t i = 0; i < PASSED_ON; i++)
        if (sigaction(passed_on[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(passed_on[i], &ours, NULL);
}

/* In the child. A group of its own: Ctrl-C reaches it once, through its parent, for a second signal would
 * kill it; and its parent's death stops it. */
static void exec_gateway(char *beside, char *config_path, pid_t parent, const sigset_t *mask)
{
    char once[] = "--once", option[] = "-c", name[] = PROGRAM;
    char *args[] = {name, once, config_path ? option : NULL, config_path, NULL};
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(1);
    setenv("POSTDATE_LOG_LEVEL", "error", 1); /* cron sends a mail for each word */
    sigprocmask(SIG_SETMASK, mask, NULL);
    execv(beside, args);
    if (errno == ENOENT)
        execvp(PROGRAM, args);
    int why = errno;
    if (why != ENOENT)
        fprintf(stderr, "postdate: cannot run " PROGRAM ": %s\n", strerror(why));
    _exit(why == ENOENT ? NOT_FOUND : NOT_RUN);
}

/* The program beside this one; "" if that can't be said. */
static void find_beside(char *out, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", out, size - sizeof PROGRAM);
    out[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(out, '/');
    if (slash)
        memcpy(slash + 1, PROGRAM, sizeof PROGRAM);
}

int gateway_run_start(const struct cli *cli)
{
    char beside[4096];
    sigset_t all, before;
    struct err e;
    pid_t self = getpid();
    find_beside(beside, sizeof beside);
    char *config_path = cli->config_path ? strdup(cli->config_path) : NULL;
    fflush(NULL);
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before); /* none is lost between fork and the handlers */
    pid_t pid = fork();
    if (pid == 0)
        exec_gateway(beside, config_path, self, &before);
    int why = errno;
    free(config_path);
    if (pid > 0) {
        child = pid;
        catch_signals();
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (pid > 0)
        return 0;
    err_set(&e, ERR_BUSY, "cannot start " PROGRAM ": %s", strerror(why));
    return cli_fail(&e);
}

static bool wait_for(int *status, int flags)
{
    pid_t pid;
    do
        pid = waitpid(child, status, flags);
    while (pid < 0 && errno == EINTR);
    return pid != 0;
}

bool gateway_run_ended(int *code)
{
    int status = 0;
    if (!wait_for(&status, WNOHANG))
        return false;
    for (size_t i = 0; i < PASSED_ON; i++)
        if (stopped_by == passed_on[i])
            signal(passed_on[i], SIG_DFL);
    if (stopped_by != 0)
        raise(stopped_by);
    *code = 1;
    if (WIFSIGNALED(status))
        cli_say(PROGRAM " --once was ended by signal %d", WTERMSIG(status));
    else if (WEXITSTATUS(status) == NOT_FOUND)
        *code = GATEWAY_RUN_MISSING;
    else
        *code = WEXITSTATUS(status) == NOT_RUN ? 69 : WEXITSTATUS(status);
    return true;
}

void gateway_run_stop(void)
{
    int status;
    kill(child, SIGTERM);
    wait_for(&status, 0);
}
