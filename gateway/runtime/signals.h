/* The signals: one thread waits for them, and nothing else runs in it, so that a signal is acted on at once
 * whatever the servers do. */
#ifndef POSTDATE_GATEWAY_RUNTIME_SIGNALS_H
#define POSTDATE_GATEWAY_RUNTIME_SIGNALS_H

#include "gateway/runtime/runtime.h"

struct signals {
    struct runtime *runtime; /* what the program ends with when a stop takes too long, if not with 1 */
    const char *config_path; /* SIGHUP reads the log settings again */
    void (*stop)(void *ctx, int sig); /* the first SIGTERM or SIGINT; a second one ends the process */
    void *ctx;
    atomic_bool ending;
    pthread_t thread;
};

/* In main, before there are threads: they inherit it. */
void signals_block(void);
/* 0; -1: there is no thread to be had. */
int signals_start(struct signals *s);
void signals_end(struct signals *s);

#endif
