/* What somebody else has put into the exit queue goes to postdate.rejected.
 *
 *   reader ──▶ a copy ──▶ the thread of relay_proof.c: into postdate.rejected ──▶ reader: acknowledged
 *
 * The reader waits for nobody. While postdate.rejected takes nothing, what there is no room for stays
 * unacknowledged without a copy; when all copies are gone, it is given back to the exit queue, and comes
 * again. */
#include "core/base/names.h"
#include "gateway/relay/relay_internal.h"
#include "gateway/runtime/guard.h"
#include "gateway/runtime/log.h"

#include <pthread.h>
#include <stdlib.h>

#define COPIES_MAX 64
#define BYTES_MAX ((size_t)8 << 20)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the lists, never for long */

/* Puts them at the end. */
static void add_list(struct relay_foreign **list, struct relay_foreign *added)
{
    GUARD(&lock);
    while (*list)
        list = &(*list)->next;
    *list = added;
}

static struct relay_foreign *take_list(struct relay_foreign **list)
{
    GUARD(&lock);
    struct relay_foreign *taken = *list;
    *list = NULL;
    return taken;
}

static void free_copy(struct relay *relay, struct relay_foreign *f)
{
    atomic_fetch_sub(&relay->foreign.count, 1);
    atomic_fetch_sub(&relay->foreign.bytes, f->size);
    free(f);
}

static void keep_copy(struct reader *r, const struct broker_event *ev)
{
    struct relay *relay = r->relay;
    size_t size = ev->exchange.len + ev->routing_key.len + ev->properties.len + bytes_copy_size(ev->body) + 1;
    size_t count = atomic_load(&relay->foreign.count), bytes = atomic_load(&relay->foreign.bytes);
    bool room = count < COPIES_MAX && (bytes == 0 || bytes + size <= BYTES_MAX);
    struct relay_foreign *f = room ? calloc(1, sizeof *f + size) : NULL;
    if (!f)
        return;
    uint8_t *at = f->data;
    f->size = size;
    f->tag = ev->tag;
    f->session = r->session;
    f->rejected.reason = bytes_of_str(RELAY_FOREIGN_REASON);
    f->rejected.input.exchange = bytes_copy(&at, ev->exchange);
    f->rejected.input.routing_key = bytes_copy(&at, ev->routing_key);
    f->rejected.input.properties = bytes_copy(&at, ev->properties);
    f->rejected.input.body = bytes_copy(&at, ev->body);
    atomic_fetch_add(&relay->foreign.count, 1);
    atomic_fetch_add(&relay->foreign.bytes, size);
    add_list(&relay->foreign.waits, f);
    notifier_notify(&relay->proof_notifier);
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
    keep_copy(r, ev);
}

/* Of those up to that tag so many, the oldest first. RabbitMQ delivers them again. */
static int give_back(struct reader *r, uint64_t up_to, size_t most, struct err *e)
{
    for (uint64_t tag = r->low; tag <= up_to && most > 0 && r->foreign_count > 0; tag++) {
        if (r->tags[tag % RELAY_WINDOW] != TAG_FOREIGN)
            continue;
        r->tags[tag % RELAY_WINDOW] = TAG_ACKED;
        r->foreign_count--;
        most--;
        if (broker_reject(r->broker, tag, true, e) != 0)
            return -1;
    }
    return 0;
}

int relay_end_foreign(struct reader *r, struct err *e)
{
    struct relay_foreign *f = take_list(&r->relay->foreign.done);
    for (struct relay_foreign *next; f; f = next) {
        next = f->next;
        /* It was given back meanwhile: then it comes again. */
        if (f->session == r->session && f->tag >= r->low && r->tags[f->tag % RELAY_WINDOW] == TAG_FOREIGN) {
            relay_note_tag(r, f->tag, TAG_DONE);
            r->foreign_count--;
        }
        free_copy(r->relay, f);
    }
    /* What waits so long would keep new ones from being taken. */
    if (r->high - r->low + 1 > RELAY_WINDOW / 2 &&
        give_back(r, r->low + RELAY_WINDOW / 4, RELAY_WINDOW, e) != 0)
        return -1;
    bool any = r->foreign_count > 0 && atomic_load(&r->relay->foreign.count) == 0;
    return any ? give_back(r, r->high, COPIES_MAX, e) : 0;
}

void relay_forget_foreign(struct reader *r)
{
    r->session++;
    r->foreign_count = 0;
    for (struct relay_foreign *f = take_list(&r->relay->foreign.waits), *next; f; f = next) {
        next = f->next;
        free_copy(r->relay, f);
    }
}

/* --- the other thread */
void relay_move_foreign(struct relay *relay, struct relay_mover *m)
{
    struct relay_foreign *taken[COPIES_MAX], *rest = take_list(&relay->foreign.waits);
    struct rejected list[COPIES_MAX];
    struct err e = {0};
    size_t n = 0, most = m->failed ? 1 : COPIES_MAX; /* one that cannot be moved keeps no other */
    for (; rest && n < most; rest = rest->next, n++) {
        taken[n] = rest;
        list[n] = rest->rejected;
    }
    if (rest)
        add_list(&relay->foreign.waits, rest);
    if (n == 0)
        return;
    int rc = rejected_publish(relay->runtime, &m->pace, list, n, &e);
    if (rc == 0) /* before the reader may free them */
        rejected_say_moved(&m->quota, list, n, "foreign message");
    for (size_t i = 0; i < n; i++) {
        taken[i]->next = NULL;
        add_list(list[i].done ? &relay->foreign.done : &relay->foreign.waits, taken[i]);
    }
    notifier_notify(&relay->pipeline->relay_notifier);
    if (rc != 0 && !m->failed)
        log_warning("cannot move what somebody else published to %s to %s, trying again: %s",
                    broker_names.exit, broker_names.rejected, e.text);
    m->failed = rc != 0;
}
