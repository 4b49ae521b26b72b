/* How requests are answered, and what happens inside a group's transaction besides storing: Idempotency-Keys
 * are taken and answered, and every request gets its answer, so that it can be stored with the key. */
#include "gateway/api/group/group_commit.h"

static void skip_items(struct group_commit *s, const struct member *m)
{
    struct store_item *items = s->scheduler.items;
    for (size_t i = 0; i < m->schedule.item_count; i++)
        items[m->schedule.first_item + i].result = m->waits ? STORE_WAITS : STORE_SKIPPED;
}

/* Its Idempotency-Key is known: answers it as the first time, or refuses it. */
static int replay_answer(struct group_commit *s, struct member *m, struct pg *pg, struct err *e)
{
    struct api_answer *a = &m->schedule.request->answer;
    int found = idempotency_find(pg, &m->idempotency, &s->scheduler.arena, e);
    if (found < 0)
        return -1;
    m->replayed = found != IDEMPOTENCY_NEW;
    m->waits = !m->replayed; /* it was rolled back between our two looks */
    skip_items(s, m);
    api_once_replay(a, &m->idempotency, (enum idempotency_found)found);
    if (a->body.failed)
        return err_set(e, ERR_BUG, "out of memory");
    return 0;
}

/* Another gateway is storing the first request with this Idempotency-Key, or died over it. */
static void leave_out_held(struct group_commit *s, struct member *m)
{
    m->waits = true;
    skip_items(s, m);
    api_fail(&m->schedule.request->answer, API_IN_PROGRESS,
             "the first request with this Idempotency-Key is being done");
}

int group_commit_before(void *ctx, struct pg *pg, struct err *e)
{
    struct group_commit *s = ctx;
    s->key_count = 0;
    for (size_t i = 0; i < s->count; i++) {
        s->group[i].replayed = s->group[i].waits = s->group[i].untried = false;
        if (s->group[i].idempotency.key.len > 0)
            s->keys[s->key_count++] = &s->group[i].idempotency;
    }
    if (s->key_count == 0)
        return 0;
    if (idempotency_begin(pg, s->keys, s->key_count, e) != 0)
        return -1;
    for (size_t i = 0; i < s->count; i++) {
        struct member *m = &s->group[i];
        if (m->idempotency.held)
            leave_out_held(s, m);
        else if (m->idempotency.key.len > 0 && !m->idempotency.taken && replay_answer(s, m, pg, e) != 0)
            return -1;
    }
    return 0;
}

/* What was stored is remembered; what was refused may be tried again with the same key. */
static int note_answer(struct member *m, struct pg *pg, struct err *e)
{
    const struct api_answer *a = &m->schedule.request->answer;
    if (!m->idempotency.taken)
        return 0;
    if (!m->waits && a->status < 300) {
        m->idempotency.status = a->status;
        m->idempotency.answer = buf_bytes(&a->body);
        return 0;
    }
    m->idempotency.taken = false;
    return idempotency_forget(pg, &m->idempotency, e);
}

int group_commit_after(void *ctx, struct pg *pg, struct err *e)
{
    struct group_commit *s = ctx;
    int64_t created_ms = store_begun_ms(pg);
    for (size_t i = 0; i < s->count; i++) {
        struct member *m = &s->group[i];
        if (m->replayed || m->waits)
            continue;
        int rc = api_schedule_answer(&s->scheduler, &m->schedule, pg, created_ms, e);
        if (rc < 0)
            return -1;
        m->waits = rc == 1;
        m->untried = rc == 1 && s->scheduler.items[m->schedule.first_item].untried;
        if (note_answer(m, pg, e) != 0)
            return -1;
    }
    return idempotency_finish(pg, s->keys, s->key_count, e);
}
