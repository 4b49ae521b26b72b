/* What a run finds of one that came to no end: rows that are asleep, and the mark of what was taken.
 *
 * The mark has precedence: what is in it the plugin has no more, so it is woken. Of the other rows the plugin
 * tells which it still has: these are dropped, and read again. What it has not, it has delivered, or another
 * Postdate has taken it. But if its table is not the one that they were read from, entries and mark went with
 * that, and they are woken: one that comes twice is not lost. */
#include "core/base/clock.h"
#include "gateway/cli/import/import_internal.h"
#include <stdlib.h>
#include <string.h>

#define PATIENCE 7    /* waits of 0.1 s, 0.2 s … 6.4 s */
#define READ_ROWS 200 /* at once: bodies are in memory */
#define READ_MEMORY ((size_t)1024 * 1024 * 1024)

struct import_call import_call_of(const struct import_run *run)
{
    const struct import_order *o = run->order;
    return (struct import_call){
        .rabbitmqctl = o->rabbitmqctl,
        .node = run->node_asked,
        .owner = run->owner,
        .run = run->run,
        .vhost = run->vhost,
        .margin_ms = o->margin_ms,
        .is_dry = o->dry_run,
        .batch =
            o->rate > 0 && o->rate < o->batch ? o->rate : o->batch, /* of a second, where there is a rate */
        .max_body = run->rules.max_body,
    };
}

int import_drop_ids(const struct import_run *run, const struct message_id *ids, size_t count, struct err *e)
{
    return count > 0 && import_forget(run->cli->pg, &run->place, false, ids, count, e) < 0 ? -1 : 0;
}

int import_ask(const struct import_run *run, const struct import_call *call, struct import_answer *a,
               struct err *e)
{
    if (import_call_run(call, a, e) != 0)
        return -1;
    if (a->fenced)
        return err_set(e, ERR_BUSY, "another import from node %s has begun: this one ends", run->node);
    return 0;
}

static size_t move_asleep_first(struct import_row *rows, size_t count)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        if (rows[i].awake)
            continue;
        struct import_row row = rows[n];
        rows[n++] = rows[i];
        rows[i] = row;
    }
    return n;
}

int import_wake_all(struct import_run *run, struct import_row *rows, size_t count, struct err *e)
{
    for (int i = 0; count > 0; i++) {
        int rc = import_wake(run->cli->pg, run->hold, rows, count, e);
        if (rc != 0 && (e->kind != ERR_BUSY || pg_is_broken(run->cli->pg)))
            return -1;
        cli_changed(run->cli, 0);
        count = rc == 0 ? move_asleep_first(rows, count) : count;
        if (count > 0 && i == PATIENCE)
            return err_set(e, ERR_BUSY,
                           "%zu messages are taken from the plugin and cannot be stored yet: somebody has "
                           "locked the table of their day (postdate doctor says who). They are safe: "
                           "run this again",
                           count);
        if (count > 0)
            clock_nap_ms(100L << i);
    }
    return 0;
}

static int wake_some(struct import_run *run, const struct message_id *ids, size_t count, struct arena *a,
                     struct err *e)
{
    struct import_row rows[READ_ROWS];
    int n = import_read(run->cli->pg, ids, count, a, rows, e);
    if (n < 0 || import_wake_all(run, rows, (size_t)n, e) != 0)
        return -1;
    run->found += n;
    cli_changed(run->cli, n);
    return 0;
}

static int wake_ids(struct import_run *run, const struct message_id *ids, size_t count, struct err *e)
{
    struct arena a;
    int rc = 0;
    arena_init(&a, READ_MEMORY);
    for (size_t i = 0; rc == 0 && i < count; i += READ_ROWS) {
        arena_reset(&a);
        rc = wake_some(run, ids + i, count - i < READ_ROWS ? count - i : READ_ROWS, &a, e);
    }
    arena_free(&a);
    return rc;
}

/* Rows of an earlier run that are in no mark. */
static int resolve(struct import_run *run, struct import_row *rows, size_t count, struct import_answer *a,
                   struct err *e)
{
    struct message_id ids[IMPORT_BATCH_MAX], alone[IMPORT_BATCH_MAX];
    size_t dropped = 0, woken = 0;
    struct import_call call = import_call_of(run);
    call.look = ids;
    call.look_count = count;
    call.look_from_ms = call.look_to_ms = rows[0].due_ms;
    for (size_t i = 0; i < count; i++) {
        ids[i] = rows[i].id;
        call.look_from_ms = rows[i].due_ms < call.look_from_ms ? rows[i].due_ms : call.look_from_ms;
        call.look_to_ms = rows[i].due_ms > call.look_to_ms ? rows[i].due_ms : call.look_to_ms;
    }
    if (import_ask(run, &call, a, e) != 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        bool is_there = import_ids_has(&a->present, rows[i].id);
        if (!is_there && (!rows[i].same_table || !a->has_table)) {
            alone[woken++] = rows[i].id;
            continue;
        }
        run->delivered += !is_there;
        ids[dropped++] = rows[i].id;
    }
    if (import_drop_ids(run, ids, dropped, e) != 0)
        return -1;
    return wake_ids(run, alone, woken, e);
}

int import_resume(struct import_run *run, struct import_answer *a, struct err *e)
{
    struct import_row *rows = calloc(IMPORT_BATCH_MAX, sizeof *rows);
    if (rows == NULL)
        return err_set(e, ERR_BUG, "out of memory");
    int n, rc = wake_ids(run, a->marks.ids, a->marks.count, e);
    while (rc == 0 && (n = import_asleep(run->cli->pg, &run->place, rows, IMPORT_BATCH_MAX, e)) != 0)
        rc = n > 0 ? resolve(run, rows, (size_t)n, a, e) : -1;
    free(rows);
    if (rc == 0 && run->found > 0)
        cli_say("an earlier run had taken %lld messages from the plugin: they are stored now",
                (long long)run->found);
    if (rc == 0 && run->delivered > 0)
        cli_say("the plugin has delivered %lld messages that an earlier run had read",
                (long long)run->delivered);
    return rc;
}
