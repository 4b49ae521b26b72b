#include "gateway/cli/rabbitmqctl.h"

#include "core/base/base64.h"
#include "core/base/clock.h"
#include "gateway/config/secrets.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOT_FOUND_CODE 127
#define PROGRAM_MAX ((size_t)130000) /* an argument of a program has at most 128 KiB */
#define WORDS_MAX ((size_t)4096)
#define END_POLLS 200 /* of 10 ms */

static void exec_program(const struct rabbitmqctl *r, const char *program, int out, int words)
{
    int nothing = open("/dev/null", O_RDONLY);
    const char *const there[] = {r->path, "-n", r->node, "eval", program, NULL}, *const here[] = {
                                                                                     r->path, "eval", program,
                                                                                     NULL};
    setpgid(0, 0); /* it starts others: they are killed with it */
    if (nothing < 0 || dup2(nothing, 0) < 0 || dup2(out, 1) < 0 || dup2(words, 2) < 0)
        _exit(NOT_FOUND_CODE);
    signal(SIGPIPE, SIG_DFL);
    secrets_leave_environment();
    /* Erlang does not start without a folder of its own; a service's user often has none. */
    const char *home = getenv("HOME");
    if (home == NULL || access(home, X_OK) != 0)
        setenv("HOME", "/tmp", 1);
    /* execvp takes its list without const, and does not write to it. */
    execvp(r->path, (char *const *)(uintptr_t)(r->node != NULL ? there : here));
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
        buf_put(to, block, (size_t)n); /* further output is read and dropped */
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

/* Its exit code, or -1. */
static int run_program(const struct rabbitmqctl *r, const char *program, struct buf *out, struct buf *words,
                       struct err *e)
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
        exec_program(r, program, out_pipe[1], words_pipe[1]);
    close(out_pipe[1]);
    close(words_pipe[1]);
    int rc = -1;
    if (pid < 0) {
        err_set(e, ERR_BUG, "fork: %s", strerror(errno));
    } else {
        rc = collect_output(out_pipe[0], words_pipe[0],
                            clock_monotonic_ns() + r->timeout_ms * INT64_C(1000000), out, words);
        if (rc != 0) {
            kill(-pid, SIGKILL);
            kill(pid, SIGKILL); /* in case it has not come to setpgid yet */
            err_set(e, ERR_AWAY, "%.100s: no answer within %d s", r->path, r->timeout_ms / 1000);
        }
        /* It has closed its output, or was killed: so it ends at once, or is killed now. */
        const struct timespec pause = {.tv_nsec = 10000000};
        for (int i = 0; waitpid(pid, &status, i < END_POLLS ? WNOHANG : 0) == 0; i++) {
            nanosleep(&pause, NULL);
            if (i == END_POLLS - 1)
                kill(-pid, SIGKILL);
        }
    }
    close(out_pipe[0]);
    close(words_pipe[0]);
    if (rc != 0)
        return -1;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    return code == NOT_FOUND_CODE ? err_set(e, ERR_NOT_FOUND, "%s cannot be run here", r->path) : code;
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
static const char *find_reason(struct buf *out, struct buf *words)
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

void rabbitmqctl_init(struct rabbitmqctl *r)
{
    *r = (struct rabbitmqctl){0};
    buf_init(&r->values, PROGRAM_MAX);
    buf_init(&r->names, PROGRAM_MAX);
}

void rabbitmqctl_free(struct rabbitmqctl *r)
{
    buf_free(&r->values);
    buf_free(&r->names);
}

static void begin_value(struct rabbitmqctl *r, const char *name)
{
    buf_printf(&r->names, "%s{'%s', %s}", r->names.len > 0 ? ", " : "", name, name);
    buf_printf(&r->values, "%s = ", name);
}

void rabbitmqctl_set(struct rabbitmqctl *r, const char *name, const char *fmt, ...)
{
    char value[200];
    va_list args;
    va_start(args, fmt);
    vsnprintf(value, sizeof value, fmt, args);
    va_end(args);
    begin_value(r, name);
    buf_printf(&r->values, "%s, ", value);
}

void rabbitmqctl_set_bytes(struct rabbitmqctl *r, const char *name, struct bytes value)
{
    begin_value(r, name);
    buf_put_str(&r->values, "base64:decode(\"");
    base64_encode(value, &r->values);
    buf_put_str(&r->values, "\"), ");
}

int rabbitmqctl_eval(struct rabbitmqctl *r, const char *program, struct buf *out, struct err *e)
{
    const char *from_environment = getenv("RABBITMQCTL");
    struct buf text, words;
    int code;
    if (r->path == NULL)
        r->path = from_environment != NULL && *from_environment != '\0' ? from_environment : "rabbitmqctl";
    buf_init(&text, PROGRAM_MAX);
    buf_init(&words, WORDS_MAX);
    /* Debian's rabbitmqctl gives its arguments to a shell, between double quotes: no dollar or backslash may
     * be in them, so the program is base64. */
    buf_put_bytes(&text, buf_bytes(&r->values));
    buf_put_str(&text, "{ok, Tokens, _} = erl_scan:string(binary_to_list(base64:decode(\"");
    base64_encode(bytes_of_str(program), &text);
    buf_put_str(&text, "\"))), {ok, Program} = erl_parse:parse_exprs(Tokens), {value, Result, _} = "
                       "erl_eval:exprs(Program, [");
    buf_put_bytes(&text, buf_bytes(&r->names));
    buf_put_str(&text, "]), Result.");
    buf_put_u8(&text, '\0');
    text.failed |= r->values.failed || r->names.failed;
    if (text.failed)
        code = err_set(e, ERR_BUG, "the program for rabbitmqctl has more than %zu bytes", PROGRAM_MAX);
    else
        code = run_program(r, (const char *)text.data, out, &words, e);
    if (code > 0)
        code = err_set(e, ERR_AWAY, "%.100s: %.300s", r->path, find_reason(out, &words));
    buf_free(&text);
    buf_free(&words);
    return code;
}
