#include "gateway/runtime/signals.h"

#include "gateway/config/config_load.h"
#include "gateway/config/secrets.h"
#include "gateway/runtime/log.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

#define STOP_S 30 /* all that a stop may take */

static void fill_set(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGHUP);
    sigaddset(set, SIGUSR1); /* from signals_end */
}

void signals_block(void)
{
    sigset_t set;
    fill_set(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGUSR2, SIG_IGN); /* they mean nothing here, and would end the program */
    signal(SIGALRM, SIG_IGN);
}

/* The next signal, or -1 when stopping takes longer than it should. */
static int wait_signal(const sigset_t *set, bool stopping)
{
    const struct timespec patience = {.tv_sec = STOP_S};
    int sig;
    do
        sig = stopping ? sigtimedwait(set, NULL, &patience) : sigwaitinfo(set, NULL);
    while (sig < 0 && errno == EINTR);
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
    int stops = 0;
    fill_set(&set);
    while (!atomic_load(&s->ending)) {
        int sig = wait_signal(&set, stops > 0);
        if (sig < 0) {
            log_warning("a server does not answer: claimed messages are left to the next gateway");
            int code = atomic_load(&s->runtime->code);
            _exit(code != 0 ? code : 1);
        }
        if (sig == SIGHUP)
            reload_log_settings(s);
        if (sig != SIGTERM && sig != SIGINT)
            continue;
        if (++stops > 1)
            _exit(1);
        s->stop(s->ctx, sig);
    }
    return NULL;
}

int signals_start(struct signals *s)
{
    return pthread_create(&s->thread, NULL, signals_thread, s) == 0 ? 0 : -1;
}

void signals_end(struct signals *s)
{
    atomic_store(&s->ending, true);
    pthread_kill(s->thread, SIGUSR1);
    pthread_join(s->thread, NULL);
}
