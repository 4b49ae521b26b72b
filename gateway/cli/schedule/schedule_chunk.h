/* A chunk of `postdate schedule --batch`: what is stored in one transaction, by a thread of its own while the
 * next one is read. */
#ifndef POSTDATE_GATEWAY_CLI_SCHEDULE_SCHEDULE_CHUNK_H
#define POSTDATE_GATEWAY_CLI_SCHEDULE_SCHEDULE_CHUNK_H

#include "core/base/arena.h"
#include "gateway/cli/schedule/schedule.h"
#include <pthread.h>

#define CHUNK_LINES 5000
#define CHUNK_BYTES ((size_t)4 * 1024 * 1024)

struct chunk {
    struct arena arena;
    struct store_item *items; /* CHUNK_LINES of each */
    int64_t *lines;           /* the line each item came from */
    const char **refusals;    /* why Postgres refused it, or NULL */
    size_t count;
    int64_t last_line, bytes; /* of the input, with this chunk */
    bool wake;                /* something is due soon */

    size_t done;   /* so many of the first ones are stored, or refused */
    bool in_doubt; /* the connection died under the next ones: neither known to be stored nor not */
    int result;
    struct err e; /* result is not 0 */
    struct cli *cli;
    pthread_t thread;
    bool has_thread;
};

/* memory: how much the lines may take, parsed. -1: out of memory; chunk_free also then. */
int chunk_init(struct chunk *c, struct cli *cli, size_t memory);
void chunk_free(struct chunk *c);
void chunk_reset(struct chunk *c);
/* Until chunk_wait nobody else touches c or the connection of the command line. No signal comes to the
 * thread. */
void chunk_store(struct chunk *c);
/* 0; -1 and c->e. Items up to c->done have a result either way. */
int chunk_wait(struct chunk *c);

#endif
