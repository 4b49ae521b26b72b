#include "gateway/cli/program.h"

#include "core/base/clock.h"
#include "gateway/config/secrets.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOT_FOUND_CODE 127
#define END_POLLS 200 /* of 10 ms */

/* Erlang does not start without a folder of its own; a service's user often has none. */
static void set_home(void)
{
    const char *home = getenv("HOME");
    if (home == NULL || access(home, X_OK) != 0)
        setenv("HOME", "/tmp", 1);
}

static void exec_program(const struct program *p, int out, int words)
{
    int nothing = open("/dev/null", O_RDONLY);
    const char *argv[PROGRAM_ARGUMENTS_MAX + 2] = {p->path};
    for (int i = 0; i < PROGRAM_ARGUMENTS_MAX && p->arguments[i] != NULL; i++)
        argv[i + 1] = p->arguments[i];
    setpgid(0, 0); /* it starts others: they are killed with it */
    if (nothing < 0 || dup2(nothing, 0) < 0 || dup2(out, 1) < 0 || dup2(words, 2) < 0)
        _exit(NOT_FOUND_CODE);
    signal(SIGPIPE, SIG_DFL);
    secrets_leave_environment();
    set_home();
    /* execvp takes its list without const, and does not write to it. */
    execvp(p->path, (char *const *)(uintptr_t)argv);
    _exit(NOT_FOUND_CODE);
}

/* 1: read something, 0: the end. */
static int read_block(int fd, struct buf *to)
{
    char block[65536];
    ssize_t n = read(fd, block, sizeof block);
    if (n < 0 && errno == EINTR)
        return 1;
    if (n > 0 && to->len + (size_t)n <= to->limit)
        buf_put(to, block, (size_t)n); /* what is beyond is read and forgotten */
    return n > 0;
}

/* Until both ends are closed. 0, or -1 when it took too long. */
static int collect_output(int out_fd, int words_fd, int64_t end_ns, struct buf *out, struct buf *words)
{
    struct pollfd p[2] = {{.fd = out_fd, .events = POLLIN}, {.fd = words_fd, .events = POLLIN}};
    struct buf *to[2] = {out, words};
    while (p[0].fd >= 0 || p[1].fd >= 0) {
        int64_t left_ms = (end_ns - clock_monotonic_ns() + 999999) / 1000000;
        int n = left_ms > 0 ? poll(p, 2, (int)left_ms) : 0;
        if (n == 0 || (n < 0 && errno != EINTR))
            return -1;
        for (int i = 0; i < 2 && n > 0; i++) {
            if (p[i].fd >= 0 && p[i].revents != 0 && !read_block(p[i].fd, to[i]))
                p[i].fd = -1;
        }
    }
    return 0;
}

/* It has closed its output, or was killed: so it ends at once, or is killed now. */
static void wait_end(pid_t pid, int *status)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    for (int i = 0; waitpid(pid, status, i < END_POLLS ? WNOHANG : 0) == 0; i++) {
        nanosleep(&pause, NULL);
        if (i == END_POLLS - 1)
            kill(-pid, SIGKILL);
    }
}

int program_run(const struct program *p, struct buf *out, struct buf *words, struct err *e)
{
    int out_pipe[2], words_pipe[2], status = 0;
    if (pipe2(out_pipe, O_CLOEXEC) != 0)
        return err_set(e, ERR_BUG, "pipe: %s", strerror(errno));
    if (pipe2(words_pipe, O_CLOEXEC) != 0) {
        close(out_pipe[0]);
        close(out_pipe[1]);
        return err_set(e, ERR_BUG, "pipe: %s", strerror(errno));
    }
    pid_t pid = fork();
    if (pid == 0)
        exec_program(p, out_pipe[1], words_pipe[1]);
    close(out_pipe[1]);
    close(words_pipe[1]);
    int rc = -1;
    if (pid < 0) {
        err_set(e, ERR_BUG, "fork: %s", strerror(errno));
    } else {
        rc = collect_output(out_pipe[0], words_pipe[0],
                            clock_monotonic_ns() + p->timeout_ms * INT64_C(1000000), out, words);
        if (rc != 0) {
            kill(-pid, SIGKILL);
            kill(pid, SIGKILL); /* in case it has not come to setpgid yet */
            err_set(e, ERR_AWAY, "no answer within %d s", p->timeout_ms / 1000);
        }
        wait_end(pid, &status);
    }
    close(out_pipe[0]);
    close(words_pipe[0]);
    if (rc != 0)
        return -1;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    return code == NOT_FOUND_CODE ? err_set(e, ERR_NOT_FOUND, "%s cannot be run here", p->path) : code;
}

const char *program_rabbitmqctl(const char *asked)
{
    const char *from_environment = getenv("RABBITMQCTL");
    return asked != NULL                                           ? asked
           : from_environment != NULL && *from_environment != '\0' ? from_environment
                                                                   : "rabbitmqctl";
}

static char *trim_start(struct buf *b)
{
    static char nothing[1];
    buf_put_u8(b, '\0');
    char *text = b->failed ? nothing : (char *)b->data;
    return text + strspn(text, " \r\n");
}

/* rabbitmqctl begins with "Error:" and then prints a screen of diagnostics,
 * which end with the hash of a secret. Debian's says on its output, after its usage, who may run it. */
const char *program_rabbitmqctl_reason(struct buf *out, struct buf *words)
{
    static const char only[] = "Only root or rabbitmq";
    char *text = trim_start(words), *found = strstr(trim_start(out), only);
    if (found == NULL)
        found = strstr(text, "Error:");
    if (found == NULL)
        found = text;
    if (strncmp(found, "Error:\n", 7) == 0) /* of an exception, with a line of its own */
        found += 7;
    if (*found == '\0')
        return "no reason given";
    found[strcspn(found, "\r\n")] = '\0';
    return found;
}
