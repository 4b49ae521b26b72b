/* To which lineage a refusal belongs, and whether it was counted before.
 *
 * RabbitMQ may deliver one refusal twice. Flagged as redelivered, when a gateway died with it: then it is
 * left out if the very same was counted before this connection was opened. What this connection counted it
 * has acknowledged, or it ends: so it cannot come again here (RabbitMQ 4.3 flags others so, too). Not
 * flagged, when a quorum queue's dead-letter worker begins anew after a fault: then nothing tells it from
 * another message that is the same, which somebody has published with the headers of the first. So it goes
 * back, too, counted by itself. */
#include "gateway/retry/retry.h"

#include <string.h>

static const struct lineage *ask(struct retry *r, const struct retry_delivery *d, struct message_id id)
{
    struct lineage *l = &r->lineages[r->lineage_count++];
    *l = (struct lineage){.id = id, .queue = d->letter.queue, .refusal = d->letter.refusal};
    return l;
}

int retry_read_lineages(struct retry *r, struct err *e)
{
    r->lineage_count = 0;
    for (size_t i = 0; i < r->inbox.count; i++) {
        struct retry_delivery *d = &r->deliveries[i];
        if (d->taken->verdict != INBOX_OPEN)
            continue;
        d->known = d->letter.has_lineage ? ask(r, d, d->letter.lineage) : NULL;
        d->own = d->letter.is_named ? ask(r, d, d->letter.refusal) : NULL;
    }
    return r->lineage_count > 0 ? lineage_read(r->inbox.pg, r->lineages, r->lineage_count, r->opened_ms, e)
                                : 0;
}

/* What this batch counts for that lineage already; NULL: nothing. */
static const struct lineage_failure *find_failure(const struct retry *r, struct message_id id,
                                                  struct bytes queue)
{
    for (size_t i = 0; i < r->failure_count; i++) {
        const struct lineage_failure *f = &r->failures[i].failure;
        if (message_id_equal(f->id, id) && bytes_equal(f->queue, queue))
            return f;
    }
    return NULL;
}

/* Of two that are alike in one batch one may be it, the other not: what was counted was one. */
static bool is_second_copy(const struct retry *r, size_t i)
{
    const struct retry_delivery *d = &r->deliveries[i];
    if (!d->taken->redelivered || !((d->known && d->known->counted) || (d->own && d->own->counted)))
        return false;
    for (size_t j = 0; j < i; j++)
        if (r->deliveries[j].is_second_copy &&
            message_id_equal(r->deliveries[j].letter.refusal, d->letter.refusal))
            return false;
    return true;
}

static struct message_id new_lineage(struct retry *r, const struct retry_delivery *d)
{
    uint8_t random[16];
    if (d->own && !d->own->found && !find_failure(r, d->letter.refusal, d->letter.queue))
        return d->letter.refusal;
    random_fill(random, sizeof random);
    return dead_letter_random_lineage(random);
}

int retry_count_failures(struct retry *r, size_t i)
{
    struct retry_delivery *d = &r->deliveries[i];
    const struct lineage *known = d->known;
    const struct lineage_failure *other = known ? find_failure(r, known->id, d->letter.queue) : NULL;
    if (is_second_copy(r, i)) {
        d->is_second_copy = true;
        if (r->copy_count++ == 0)
            r->first_copy = d;
        return 0;
    }
    if (known && (!known->found || (!known->dead && d->letter.attempt > known->failed))) {
        d->lineage = known->id;
        if (!other)
            return d->letter.attempt;
        /* One transaction counts one failure of a lineage. */
        if (!other->dead && d->letter.attempt > other->failed)
            return -1;
    }
    /* Consumers may take what has the same id for the same message: so it must be the same. */
    const uint8_t *hash = other ? other->hash : known && known->found ? known->hash : NULL;
    bool same = hash && memcmp(hash, d->letter.hash, sizeof d->letter.hash) == 0;
    d->lineage = new_lineage(r, d);
    if (!same)
        d->letter.id = d->lineage;
    return 1;
}
