#include "gateway/runtime/shards_run.h"

#include "core/base/clock.h"

#define STEPS_MAX 6 /* three, and what others change between two of them */

static enum topology_step next_step(const struct shards_record *r)
{
    if (!r->used && r->queues == 1)
        return TOPOLOGY_DIRECT;
    if (r->settled)
        return r->grows ? TOPOLOGY_PREPARE : TOPOLOGY_WIDEN;
    return r->moving ? TOPOLOGY_NARROW : TOPOLOGY_PREPARE;
}

/* What is written down before the sources are touched, and before the exchange leads to more queues. */
static int remember(struct pg *pg, const struct shards_place *place, enum topology_step step, bool settled,
                    struct err *e)
{
    if (step == TOPOLOGY_PREPARE && !settled)
        return shards_unmark(pg, place, e);
    if (step != TOPOLOGY_NARROW)
        return 0;
    clock_nap_ms(SHARDS_SETTLE_MS);
    return shards_mark(pg, place, e);
}

static int take_step(struct pg *pg, const struct shards_job *job, bool first, enum topology_step *step,
                     struct err *e)
{
    struct shards_record record = {0};
    if (shards_lock(pg, &job->place, first ? job->wish : NULL, &record, e) != 0)
        return -1;
    *step = next_step(&record);
    int rc = 0;
    /* Whatever a vhost still has that this database has never seen. */
    if (*step == TOPOLOGY_PREPARE && !record.used && record.fresh)
        rc = job->declare(job->ctx, TOPOLOGY_DIRECT, &record, e);
    if (rc == 0)
        rc = job->declare(job->ctx, *step, &record, e);
    if (rc == 0)
        rc = remember(pg, &job->place, *step, record.settled, e);
    shards_record_free(&record);
    return shards_unlock(pg, rc, e);
}

int shards_run(struct pg *pg, const struct shards_job *job, struct err *e)
{
    enum topology_step step;
    for (int i = 0; i < STEPS_MAX; i++) {
        if (take_step(pg, job, i == 0, &step, e) != 0)
            return -1;
        if (step == TOPOLOGY_DIRECT || step == TOPOLOGY_WIDEN)
            return 0;
    }
    return err_set(e, ERR_BUSY, "other gateways keep changing the queues of '%s'", job->place.place);
}
