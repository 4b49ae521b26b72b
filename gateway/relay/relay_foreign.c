/* What somebody else has put into the exit queue goes to postdate.rejected.
 *
 *   reader ──▶ a free place ──▶ the thread of relay_proof.c: into postdate.rejected ──▶ reader: acknowledged
 *
 * The reader waits for nobody. While postdate.rejected takes nothing, what has no place stays unacknowledged
 * without a copy; when there is one again, it is given back to the exit queue, and comes again. */
#include "core/base/names.h"
#include "gateway/relay/relay_internal.h"
#include "gateway/runtime/log.h"

#include <stdlib.h>
#include <string.h>

#define BYTES_MAX ((size_t)8 << 20)

static void free_place(struct reader *r, struct relay_foreign *f)
{
    free(f->data);
    r->foreign_bytes -= f->size;
    f->data = NULL;
    atomic_store(&f->state, FOREIGN_FREE);
}

static struct relay_foreign *find_free(struct reader *r, size_t size)
{
    if (r->foreign_bytes > 0 && r->foreign_bytes + size > BYTES_MAX)
        return NULL;
    for (size_t i = 0; i < RELAY_FOREIGN_MAX; i++)
        if (atomic_load(&r->relay->foreign[i].state) == FOREIGN_FREE)
            return &r->relay->foreign[i];
    return NULL;
}

static bool keep_copy(struct reader *r, const struct broker_event *ev, const char *reason)
{
    size_t size = ev->exchange.len + ev->routing_key.len + ev->properties.len + bytes_copy_size(ev->body) + 1;
    struct relay_foreign *f = find_free(r, size);
    uint8_t *at = f ? malloc(size) : NULL;
    if (!at)
        return false;
    f->data = at;
    f->size = size;
    f->tag = ev->tag;
    f->session = r->session;
    f->rejected = (struct rejected){.reason = bytes_of_str(reason)};
    f->rejected.input.exchange = bytes_copy(&at, ev->exchange);
    f->rejected.input.routing_key = bytes_copy(&at, ev->routing_key);
    f->rejected.input.properties = bytes_copy(&at, ev->properties);
    f->rejected.input.body = bytes_copy(&at, ev->body);
    r->foreign_bytes += size;
    atomic_store(&f->state, FOREIGN_WAITS);
    notifier_notify(&r->relay->proof_notifier);
    return true;
}

void relay_take_foreign(struct reader *r, const struct broker_event *ev)
{
    char name[REJECTED_NAME_SIZE];
    if (!r->said_foreign)
        log_warning("something else publishes to %s: messages that are not the gateway's are moved to "
                    "%s; the first: %s",
                    broker_names.exit, broker_names.rejected, rejected_name(ev->properties, name));
    r->said_foreign = true;
    relay_note_tag(r, ev->tag, TAG_FOREIGN);
    r->foreign_count++;
    r->foreign_placeless += !keep_copy(r, ev, RELAY_FOREIGN_REASON);
}

/* RabbitMQ delivers it again. */
static int give_back(struct reader *r, uint64_t tag, struct err *e)
{
    bool placed = false;
    for (size_t i = 0; i < RELAY_FOREIGN_MAX; i++) {
        struct relay_foreign *f = &r->relay->foreign[i];
        if (atomic_load(&f->state) == FOREIGN_FREE || f->session != r->session || f->tag != tag)
            continue;
        placed = true;
        f->session = 0; /* it may be moved now, and is not to be acknowledged then */
    }
    r->foreign_placeless -= !placed;
    r->foreign_count--;
    r->tags[tag % RELAY_WINDOW] = TAG_ACKED;
    return broker_reject(r->broker, tag, true, e);
}

/* Of those up to that tag so many, the oldest first. */
static int give_back_some(struct reader *r, uint64_t up_to, size_t most, struct err *e)
{
    for (uint64_t tag = r->low; tag <= up_to && most > 0 && r->foreign_count > 0; tag++) {
        if (r->tags[tag % RELAY_WINDOW] != TAG_FOREIGN)
            continue;
        if (give_back(r, tag, e) != 0)
            return -1;
        most--;
    }
    return 0;
}

static void end_moved(struct reader *r, struct relay_foreign *f)
{
    if (f->session == r->session) {
        relay_note_tag(r, f->tag, TAG_DONE);
        r->foreign_count--;
    }
    free_place(r, f);
}

int relay_end_foreign(struct reader *r, struct err *e)
{
    size_t places = 0;
    for (size_t i = 0; i < RELAY_FOREIGN_MAX; i++) {
        struct relay_foreign *f = &r->relay->foreign[i];
        if (atomic_load(&f->state) == FOREIGN_MOVED)
            end_moved(r, f);
        places += atomic_load(&f->state) == FOREIGN_FREE;
    }
    /* What waits so long would keep new ones from being taken. */
    if (r->high - r->low + 1 > RELAY_WINDOW / 2 &&
        give_back_some(r, r->low + RELAY_WINDOW / 4, RELAY_WINDOW, e) != 0)
        return -1;
    if (places < RELAY_FOREIGN_MAX || r->foreign_placeless == 0)
        return 0;
    return give_back_some(r, r->high, r->foreign_placeless < places ? r->foreign_placeless : places, e);
}

void relay_forget_foreign(struct reader *r)
{
    r->session++;
    r->foreign_count = r->foreign_placeless = 0;
    for (size_t i = 0; i < RELAY_FOREIGN_MAX; i++) {
        int waits = FOREIGN_WAITS;
        if (atomic_compare_exchange_strong(&r->relay->foreign[i].state, &waits, FOREIGN_FREE))
            free_place(r, &r->relay->foreign[i]);
    }
}

/* --- the other thread */
static size_t take_places(struct relay *relay, struct relay_mover *m, struct rejected *list, size_t *places)
{
    size_t n = 0, most = m->failed ? 1 : RELAY_FOREIGN_MAX; /* one that cannot be moved keeps no other */
    for (size_t i = 0; i < RELAY_FOREIGN_MAX && n < most; i++) {
        int waits = FOREIGN_WAITS;
        size_t place = (m->next + i) % RELAY_FOREIGN_MAX;
        if (!atomic_compare_exchange_strong(&relay->foreign[place].state, &waits, FOREIGN_MOVES))
            continue;
        places[n] = place;
        list[n++] = relay->foreign[place].rejected;
    }
    if (n > 0)
        m->next = (places[n - 1] + 1) % RELAY_FOREIGN_MAX;
    return n;
}

void relay_move_foreign(struct relay *relay, struct relay_mover *m)
{
    struct rejected list[RELAY_FOREIGN_MAX];
    size_t places[RELAY_FOREIGN_MAX];
    struct err e = {0};
    size_t n = take_places(relay, m, list, places);
    if (n == 0)
        return;
    int rc = rejected_publish(relay->runtime, &m->pace, list, n, &e);
    if (rc == 0) /* before the reader may free them */
        rejected_say_moved(&m->quota, list, n, "foreign message");
    for (size_t i = 0; i < n; i++)
        atomic_store(&relay->foreign[places[i]].state, list[i].done ? FOREIGN_MOVED : FOREIGN_WAITS);
    notifier_notify(&relay->pipeline->relay_notifier);
    if (rc != 0 && !m->failed)
        log_warning("cannot move what somebody else published to %s to %s, trying again: %s",
                    broker_names.exit, broker_names.rejected, e.text);
    m->failed = rc != 0;
}
