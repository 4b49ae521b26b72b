#include "gateway/runtime/daemon.h"

#include "core/base/clock.h"
#include "gateway/config/secrets.h"
#include "gateway/runtime/log.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define STOP_S 30 /* all that a stop may take */

static void fill_set(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGHUP);
}

void signals_block(void)
{
    sigset_t set;
    fill_set(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGUSR1, SIG_IGN); /* they mean nothing here, and would end the program */
    signal(SIGUSR2, SIG_IGN);
    signal(SIGALRM, SIG_IGN);
}

/* The next signal, or -1 at until_ms (monotonic; 0: never). */
static int wait_signal(const sigset_t *set, int64_t until_ms)
{
    int sig;
    do {
        int64_t left_ms = until_ms - clock_monotonic_ms();
        struct timespec left = {0};
        if (left_ms > 0)
            left = (struct timespec){.tv_sec = left_ms / 1000, .tv_nsec = left_ms % 1000 * 1000000};
        sig = until_ms != 0 ? sigtimedwait(set, NULL, &left) : sigwaitinfo(set, NULL);
    } while (sig < 0 && errno == EINTR);
    return sig;
}

static void reload_log_settings(const struct signals *s)
{
    struct config c;
    struct err e = {0};
    if (config_load(&c, s->config_path, NULL, &e) != 0) {
        log_error("SIGHUP: configuration unchanged: %s", e.text);
        return;
    }
    log_setup(c.log.level, c.log.json, c.log.audit);
    secrets_allow_dumps(c.log.core_dumps);
    config_free(&c);
    log_info("SIGHUP: log settings read again; all other options need a restart");
}

static void *signals_thread(void *arg)
{
    struct signals *s = arg;
    sigset_t set;
    int64_t until_ms = 0;
    fill_set(&set);
    for (;;) {
        int sig = wait_signal(&set, until_ms);
        if (sig < 0) {
            log_warning("shutdown timed out because a server does not respond; another gateway will recover "
                        "the claimed messages");
            int code = atomic_load(&s->runtime->code);
            _exit(code != 0 ? code : 1);
        }
        if (sig == SIGHUP)
            reload_log_settings(s);
        if (sig != SIGTERM && sig != SIGINT)
            continue;
        if (until_ms != 0)
            _exit(1);
        until_ms = clock_monotonic_ms() + STOP_S * 1000;
        s->stop(s->ctx, sig);
    }
}

int signals_start(struct signals *s)
{
    pthread_t thread;
    return pthread_create(&thread, NULL, signals_thread, s) == 0 ? pthread_detach(thread) : -1;
}

/* --- systemd */

static int service_socket = -1;
static struct sockaddr_un service_address;
static socklen_t service_address_size;
static int64_t watchdog_ms, told_ms;

/* A path, or "@name" for one without a file. */
static int take_address(const char *name)
{
    size_t len = strlen(name);
    if ((name[0] != '/' && name[0] != '@') || len >= sizeof service_address.sun_path)
        return -1;
    service_address.sun_family = AF_UNIX;
    memcpy(service_address.sun_path, name, len);
    if (name[0] == '@')
        service_address.sun_path[0] = '\0';
    service_address_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    return 0;
}

/* Only for the process that systemd means. */
static int64_t read_watchdog(void)
{
    const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    if (usec == NULL || (pid != NULL && strtoll(pid, NULL, 10) != getpid()))
        return 0;
    long long us = strtoll(usec, NULL, 10);
    return us > 0 ? us / 1000 : 0;
}

void service_open(void)
{
    const char *name = getenv("NOTIFY_SOCKET");
    if (name != NULL && take_address(name) == 0)
        service_socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    watchdog_ms = read_watchdog();
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
}

void service_notify(const char *lines)
{
    if (service_socket >= 0)
        while (sendto(service_socket, lines, strlen(lines), MSG_NOSIGNAL,
                      (const struct sockaddr *)&service_address, service_address_size) < 0 &&
               errno == EINTR)
            ;
}

void service_alive(int64_t now_ms)
{
    if (watchdog_ms <= 0 || now_ms - told_ms < watchdog_ms / 2)
        return;
    told_ms = now_ms;
    service_notify("WATCHDOG=1");
}
