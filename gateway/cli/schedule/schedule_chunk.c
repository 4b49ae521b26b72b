#include "gateway/cli/schedule/schedule_chunk.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

int chunk_init(struct chunk *c, struct cli *cli, size_t memory)
{
    *c = (struct chunk){.cli = cli};
    arena_init(&c->arena, memory);
    c->items = calloc(CHUNK_LINES, sizeof *c->items);
    c->lines = calloc(CHUNK_LINES, sizeof *c->lines);
    c->refusals = calloc(CHUNK_LINES, sizeof *c->refusals);
    return c->items && c->lines && c->refusals ? 0 : -1;
}

void chunk_free(struct chunk *c)
{
    arena_free(&c->arena);
    free(c->items);
    free(c->lines);
    free(c->refusals);
}

void chunk_reset(struct chunk *c)
{
    arena_reset(&c->arena);
    c->count = c->done = 0;
    c->wake = c->in_doubt = false;
}

static const char *keep_text(struct chunk *c, const char *text)
{
    size_t size = strlen(text) + 1;
    char *kept = arena_alloc(&c->arena, size);
    return kept ? memcpy(kept, text, size) : "PostgreSQL refused it";
}

/* When Postgres refuses something in a chunk, halving finds it: everything else is stored. */
static int store_range(struct chunk *c, size_t first, size_t count)
{
    memset(c->refusals + first, 0, count * sizeof *c->refusals);
    if (schedule_store(c->cli, c->items + first, count, &c->e) == 0) {
        c->done = first + count;
        return 0;
    }
    if (c->e.kind != ERR_REJECT)
        return -1;
    if (count == 1) {
        c->refusals[first] = keep_text(c, c->e.text);
        c->done = first + 1;
        return 0;
    }
    if (store_range(c, first, count / 2) != 0)
        return -1;
    return store_range(c, first + count / 2, count - count / 2);
}

static void *store_thread(void *arg)
{
    struct chunk *c = arg;
    c->result = c->count > 0 ? store_range(c, 0, c->count) : 0;
    c->in_doubt = c->result != 0 && (c->e.kind == ERR_AWAY || pg_is_broken(c->cli->pg));
    if (c->result == 0 && c->wake)
        c->result = store_wake(c->cli->pg, &c->e);
    return NULL;
}

void chunk_store(struct chunk *c)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    c->has_thread = pthread_create(&c->thread, NULL, store_thread, c) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!c->has_thread)
        store_thread(c);
}

int chunk_wait(struct chunk *c)
{
    if (c->has_thread)
        pthread_join(c->thread, NULL);
    c->has_thread = false;
    return c->result;
}
