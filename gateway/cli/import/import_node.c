/* The import from one node. For each batch: stored asleep → taken out of the plugin → awake. Taking a batch
 * and reading the next one is one call. */
#include "core/base/clock.h"
#include "gateway/cli/import/import_internal.h"
#include "sql/pipeline/store.h"
#include <stdlib.h>
#include <string.h>

#define BATCH_BYTES (24 * 1024 * 1024)
#define DRY_BATCH 50000
#define WAKE_MS 1500 /* what is due sooner than that a sleeping gateway may not expect */

volatile int import_interrupted;

/* What was read, and is being stored. */
struct batch {
    struct import_answer answer;
    struct import_row *rows; /* those that can be stored; as many as there are entries */
    struct message_id *ids;
    size_t count;
};

static void batch_init(struct batch *b)
{
    *b = (struct batch){0};
    import_answer_init(&b->answer);
}

static void batch_free(struct batch *b)
{
    import_answer_free(&b->answer);
    free(b->rows);
    free(b->ids);
}

static void count_read(struct import_count *c, const struct import_entry *m)
{
    if (c->read == 0 || m->due_ms < c->first_ms)
        c->first_ms = m->due_ms;
    if (c->read == 0 || m->due_ms > c->last_ms)
        c->last_ms = m->due_ms;
    c->read++;
}

/* Makes rows of what the broker has read, and counts what can be none. */
static int make_rows(struct import_run *run, struct batch *b, struct err *e)
{
    struct import_answer *a = &b->answer;
    free(b->rows);
    free(b->ids);
    b->count = 0;
    b->rows = calloc(a->count + 1, sizeof *b->rows);
    b->ids = calloc(a->count + 1, sizeof *b->ids);
    if (b->rows == NULL || b->ids == NULL)
        return err_set(e, ERR_BUG, "out of memory");
    for (size_t i = 0; i < a->count; i++) {
        const struct import_entry *m = &a->entries[i];
        struct import_count *c = import_count_of(run, m->exchange);
        if (c == NULL)
            return err_set(e, ERR_REJECT, "messages of more than %d exchanges wait", IMPORT_EXCHANGES_MAX);
        count_read(c, m);
        run->done++;
        if (import_message(run, m, a->now_ms, &a->arena, &b->rows[b->count], e) == 0)
            b->ids[b->count++] = m->id;
        else if (e->kind == ERR_REJECT)
            import_count_refusal(run, m->exchange, e->text);
        else
            return -1;
    }
    progress_update(&run->progress, run->done, run->done);
    return 0;
}

/* Those that the broker took are awake then; the others stay with the plugin, or it has delivered them. */
static int finish_batch(struct import_run *run, struct batch *b, const struct import_ids *taken,
                        struct err *e)
{
    size_t woken = 0, left = 0;
    for (size_t i = 0; i < b->count; i++) {
        struct import_count *c = import_count_of(run, b->rows[i].source);
        if (import_ids_has(taken, b->rows[i].id)) {
            b->rows[woken++] = b->rows[i];
            c->stored++;
        } else {
            b->ids[left++] = b->rows[i].id;
            c->left++;
        }
    }
    if (import_wake_all(run, b->rows, woken, e) != 0)
        return -1;
    for (size_t i = 0; i < woken; i++)
        run->known += b->rows[i].known;
    cli_changed(run->cli, (int64_t)woken);
    b->count = 0;
    if (import_drop_ids(run, b->ids, left, e) != 0)
        return -1;
    if (woken > 0)
        store_wake(run->cli->pg);
    return 0;
}

/* The next call: it takes what is asleep and reads on. */
static struct import_call next_call(struct import_run *run, const struct batch *asleep,
                                    enum import_reading reading, int64_t from_ms)
{
    struct import_call call = import_call_of(run);
    call.seq = asleep->count > 0 ? run->seq : 0;
    call.take = asleep->ids;
    call.take_count = asleep->count;
    call.next_seq = ++run->seq;
    call.reading = reading;
    call.from_ms = from_ms;
    call.bytes = BATCH_BYTES;
    call.with_bodies = !run->order->dry_run;
    if (run->order->dry_run)
        call.batch = DRY_BATCH;
    return call;
}

/* So many a second, from the beginning on. */
static void keep_rate(const struct import_run *run)
{
    while (run->order->rate > 0 && !import_interrupted &&
           (double)run->done > progress_seconds(&run->progress) * (double)run->order->rate)
        clock_nap_ms(50);
}

static int gone(const struct import_run *run, struct batch *asleep, struct err *e)
{
    if (import_drop_ids(run, asleep->ids, asleep->count, e) != 0)
        return -1;
    asleep->count = 0;
    return err_set(e, ERR_AWAY, "node %s has been started anew meanwhile: run this again, and it goes on",
                   run->node);
}

/* One call, and what follows from it. `asleep` was read before, `next` is read now. */
static int step(struct import_run *run, struct batch *asleep, struct batch *next, struct import_call *call,
                struct err *e)
{
    if (import_ask(run, call, &next->answer, e) != 0)
        return -1;
    if (!next->answer.has_table)
        return err_set(e, ERR_AWAY, "node %s has no table of the plugin any more", run->node);
    if (next->answer.gone)
        return gone(run, asleep, e);
    if (asleep->count > 0 && finish_batch(run, asleep, &next->answer.taken, e) != 0)
        return -1;
    if (make_rows(run, next, e) != 0)
        return -1;
    if (run->order->dry_run) {
        for (size_t i = 0; i < next->count; i++)
            import_count_of(run, next->rows[i].source)->stored++;
        next->count = 0;
        return 0;
    }
    if (next->count == 0)
        return 0;
    return import_stage(run->cli->pg, &run->place, next->rows, next->count, e);
}

static int end_run(struct import_run *run, struct batch *b, struct err *e)
{
    struct import_call call = import_call_of(run);
    call.ends = true;
    return import_ask(run, &call, &b->answer, e);
}

/* Nothing is asleep, and the plugin's table is as if this run had never been. */
static int interrupt(struct import_run *run, struct batch *asleep, struct err *e)
{
    struct err ignored;
    if (import_drop_ids(run, asleep->ids, asleep->count, e) != 0)
        return -1;
    asleep->count = 0;
    if (!run->order->dry_run)
        (void)end_run(run, asleep, &ignored);
    return err_set(e, ERR_STOPPING, "interrupted: run this again, and it goes on");
}

static int read_all(struct import_run *run, struct batch b[2], struct err *e)
{
    enum import_reading reading = IMPORT_READ_FROM;
    int64_t from_ms = 0;
    struct batch *asleep = &b[0], *next = &b[1];
    while (reading != IMPORT_READ_NOTHING || asleep->count > 0) {
        if (import_interrupted)
            return interrupt(run, asleep, e);
        struct import_call call = next_call(run, asleep, reading, from_ms);
        if (step(run, asleep, next, &call, e) != 0)
            return -1;
        reading = next->answer.next;
        from_ms = next->answer.next_ms;
        struct batch *free_one = asleep;
        asleep = next;
        next = free_one;
        keep_rate(run);
    }
    return run->order->dry_run ? 0 : end_run(run, next, e);
}

static int check_mappings(const struct import_run *run, struct err *e)
{
    char name[120];
    for (size_t i = 0; i < run->count_count; i++)
        if (!run->counts[i].mapped && !run->order->dry_run)
            return err_set(
                e, ERR_USAGE,
                "%lld messages of exchange \"%s\" wait, and it has no new name: give --exchange %s=NEW, an "
                "ordinary exchange to which its queues are bound (in itself they would be delayed again)",
                (long long)run->counts[i].waiting, bytes_printable(run->counts[i].from, name, sizeof name),
                name);
    return 0;
}

static void name_others(const struct import_run *run, const struct import_answer *a)
{
    for (size_t i = 0; run->order->node_count == 0 && i < a->node_count; i++)
        if (strcmp(a->nodes[i], run->node) != 0)
            cli_say("node %s runs, too, and may have messages of its own: --node %s", a->nodes[i],
                    a->nodes[i]);
}

/* Looks first, and begins when nothing is wrong. */
static int begin_run(struct import_run *run, struct import_answer *a, FILE *proof, struct err *e)
{
    struct import_call call = import_call_of(run);
    call.begins = call.is_dry = true;
    if (import_call_run(&call, a, e) != 0)
        return -1;
    snprintf(run->node, sizeof run->node, "%s", a->node);
    run->place = (struct import_place){.node = bytes_of_str(run->node), .run = bytes_of_str(run->run)};
    name_others(run, a);
    if (import_count_survey(run, a, e) != 0 || check_mappings(run, e) != 0)
        return -1;
    if (run->order->dry_run) {
        import_count_print_hours(run, a);
        return 0;
    }
    int alone = import_be_alone(run->cli->pg, &run->place, e);
    if (alone <= 0)
        return alone < 0 ? -1 : err_set(e, ERR_BUSY, "another import from node %s is at work", run->node);
    call.is_dry = false;
    if (import_proof_settle(run, proof, e) != 0 || import_call_run(&call, a, e) != 0)
        return -1;
    snprintf(run->before, sizeof run->before, "%s", a->before);
    run->place.before = bytes_of_str(run->before);
    return import_resume(run, a, e);
}

int import_node(struct import_run *run, FILE *proof, struct err *e)
{
    struct batch b[2];
    batch_init(&b[0]);
    batch_init(&b[1]);
    int rc = begin_run(run, &b[0].answer, proof, e);
    bool has_table = b[0].answer.has_table;
    if (rc == 0 && !has_table)
        cli_say("node %s has no table of the plugin, so nothing waits there", run->node);
    else if (rc == 0)
        cli_say("node %s: %lld messages wait in the plugin, and are due later than in the margin", run->node,
                (long long)run->total);
    progress_start(&run->progress, run->total);
    run->progress.unit = "messages";
    if (rc == 0 && has_table)
        rc = read_all(run, b, e);
    progress_clear(&run->progress);
    if (run->known > 0)
        cli_say(
            "an earlier import had stored %lld of the messages, and the plugin had them again (is its table "
            "restored from a copy?): they are only taken from the plugin",
            (long long)run->known);
    if (rc == 0 && !run->order->dry_run)
        rc = import_proof_write(run, proof, e);
    batch_free(&b[0]);
    batch_free(&b[1]);
    return rc;
}
