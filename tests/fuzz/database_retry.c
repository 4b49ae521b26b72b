/* What sql/ would do with dead letters. */
#include "tests/fuzz/database.h"

#include "sql/operate/dead.h"
#include "sql/pipeline/lineage.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static const struct message_id some_id = {{1, 0x90, 0xa5, 0xe0, 0, 0, 0x40, 0, 0x80, 7}};

bool dead_is_reason(struct bytes name)
{
    return death_reason_parse(name) != 0 || bytes_equal_str(name, "deadline") ||
           bytes_equal_str(name, "return_failed");
}

static void check_filter(const struct dead_filter *f)
{
    const struct bytes names[] = {f->queue, f->exchange, f->routing_key};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        FUZZ_HOLDS(!names[i].data || (bytes_is_text(names[i]) && names[i].len <= 255));
    FUZZ_HOLDS(!f->reason.data || dead_is_reason(f->reason));
    FUZZ_HOLDS(f->ids || f->id_count == 0);
}

static struct dead_letter_record make_record(void)
{
    static const struct dead_attempt attempts[] = {{FUZZ_NOW_MS, "rejected"}, {FUZZ_NOW_MS, "expired"}};
    uint8_t kind = database_byte();
    return (struct dead_letter_record){.id = some_id,
                                       .queue = bytes_of_str("orders"),
                                       .exchange = bytes_of_str(kind & 1 ? "" : "shop"),
                                       .routing_key = bytes_of_str("a.b"),
                                       .reason = "rejected",
                                       .failed = 2,
                                       .died_us = kind & 2 ? -1 : FUZZ_NOW_MS * 1000,
                                       .expires_ms = FUZZ_NOW_MS,
                                       .state = (enum dead_state)(kind % 3),
                                       .next_ms = kind & 4 ? FUZZ_NOW_MS : -1,
                                       .error = bytes_of_str(kind & 8 ? "no queue" : ""),
                                       .body = bytes_of_str(kind & 16 ? "hello" : "\xff\xfe"),
                                       .attempts = attempts,
                                       .attempt_count = 2};
}

int dead_list(struct pg *c, const struct operate_scope *scope, const struct dead_list *l, struct err *e)
{
    (void)c, (void)scope;
    check_filter(l->filter);
    FUZZ_HOLDS(l->limit >= 1 && l->limit <= 1001);
    for (int n = database_byte() % 4; n > 0; n--) {
        const struct dead_letter_record record = make_record();
        if (!l->each(l->ctx, &record))
            break;
    }
    return database_outcome(false, e);
}

int dead_groups(struct pg *c, const struct operate_scope *scope, const struct dead_filter *f, struct arena *a,
                struct dead_groups *out, struct err *e)
{
    static const struct dead_group group = {.count = 3, .oldest_ms = FUZZ_NOW_MS, .newest_ms = FUZZ_NOW_MS};
    (void)c, (void)scope, (void)a;
    check_filter(f);
    *out = (struct dead_groups){.groups = &group, .count = database_byte() % 2, .complete = true};
    return database_outcome(false, e);
}

int dead_show(struct pg *c, const struct operate_scope *scope, const struct dead_name *name, struct arena *a,
              struct dead_letter_record *out, struct err *e)
{
    (void)c, (void)scope, (void)a;
    FUZZ_HOLDS(!name->queue.data || bytes_is_text(name->queue));
    *out = make_record();
    return database_outcome(true, e);
}

bool dead_explain(struct pg *c, const struct operate_scope *scope, struct message_id id, struct err *e)
{
    (void)c, (void)scope, (void)id, (void)e;
    return database_byte() % 2 == 1;
}

int dead_bulk(struct pg *c, const struct operate_scope *scope, const struct dead_bulk *b,
              struct operate_count *out, struct err *e)
{
    (void)c, (void)scope;
    check_filter(b->filter);
    FUZZ_HOLDS(b->interval_us >= 0);
    *out = (struct operate_count){.matched = 5, .changed = database_byte() % 6};
    if (b->progress)
        b->progress(b->ctx, out->matched, out->changed);
    return database_outcome(false, e);
}

int lineage_policies(struct pg *c, struct arena *arena, struct retry_policy **out, size_t *out_count,
                     struct err *e)
{
    (void)c;
    *out = arena_alloc(arena, sizeof **out);
    if (!*out)
        return err_set(e, ERR_BUG, "out of memory");
    **out = retry_policy_default;
    *out_count = database_byte() % 2;
    return database_outcome(false, e);
}
