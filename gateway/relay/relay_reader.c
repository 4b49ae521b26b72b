/* What the relay's connection has taken: opened, kept in memory, acknowledged. */
#include "amqp/topology/transport.h"
#include "core/base/names.h"
#include "core/base/timestamp.h"
#include "core/message/wire.h"
#include "gateway/relay/relay_internal.h"
#include "gateway/runtime/log.h"

#include <unistd.h>

#define AHEAD_MS 60000 /* so far may a gateway's estimate of the database's clock be ahead of another's */
#define SINGLES_MS 200 /* so long acknowledgements wait for those before them, to be said in one */

struct inflight *relay_hold(struct reader *r, const struct message *m)
{
    const struct claimed_row row = {.message = *m, .next_at_ms = m->due_ms};
    struct inflight *h = inflight_new(&row, 0, &r->pipeline->relayed);
    if (h)
        h->relayed = true;
    return h;
}

void relay_note_tag(struct reader *r, uint64_t tag, enum tag_state state)
{
    if (tag < r->low)
        return; /* given up */
    r->tags[tag % RELAY_WINDOW] = (uint8_t)state;
    if (tag > r->high)
        r->high = tag;
}

void relay_end_without_memory(void)
{
    log_error("there is no memory for the messages of %s", broker_names.exit);
    _exit(1);
}

int relay_acknowledge_singles(struct reader *r, struct err *e)
{
    for (uint64_t tag = r->low; tag <= r->high; tag++) {
        if (r->tags[tag % RELAY_WINDOW] != TAG_DONE)
            continue;
        if (broker_ack(r->broker, tag, false, e) != 0)
            return -1;
        r->tags[tag % RELAY_WINDOW] = TAG_ACKED;
    }
    return broker_flush(r->broker,
                        e); /* while there is no room for more, nothing is asked of the connection */
}

int relay_acknowledge(struct reader *r, struct err *e)
{
    uint64_t done[1000], last = 0;
    size_t n;
    int64_t now_ms = clock_monotonic_ms();
    while ((n = relay_book_take_done(&r->pipeline->book, done, sizeof done / sizeof done[0])) > 0)
        for (size_t i = 0; i < n; i++)
            relay_note_tag(r, done[i], TAG_DONE);
    for (; r->low <= r->high && r->tags[r->low % RELAY_WINDOW] >= TAG_DONE; r->low++) {
        if (r->tags[r->low % RELAY_WINDOW] == TAG_DONE)
            last = r->low;
        r->tags[r->low % RELAY_WINDOW] = TAG_NONE;
        r->low_ms = now_ms;
    }
    if (last > 0 && broker_ack(r->broker, last, true, e) != 0)
        return -1;
    if (r->low > r->high)
        r->low_ms = now_ms;
    /* What is so old only waits for somebody's lock on its row: its outcome is known, and is written down
     * when the lock is gone. But while the database is away, it is a proof. */
    bool full = r->high - r->low > RELAY_WINDOW / 2 && !pipeline_is_behind(r->pipeline);
    for (uint64_t tag = r->low; full && tag < r->low + RELAY_WINDOW / 4; tag++)
        if (r->tags[tag % RELAY_WINDOW] == TAG_TAKEN)
            r->tags[tag % RELAY_WINDOW] = TAG_DONE;
    if (now_ms - r->low_ms < SINGLES_MS)
        return broker_flush(r->broker, e);
    r->low_ms = now_ms;
    return relay_acknowledge_singles(r, e);
}

/* One that comes again may be older; but after the database's clock was set back, less is later. */
static void note_ping(atomic_int_fast64_t *latest_ms, int64_t sent_ms, int64_t now_ms)
{
    int64_t before_ms = atomic_load(latest_ms);
    if (sent_ms > before_ms || before_ms > now_ms)
        atomic_store(latest_ms, sent_ms);
}

bool relay_is_ping(struct relay *relay, const struct broker_event *ev, int64_t *heard_ms)
{
    struct wire_properties p;
    struct wire_field f;
    int64_t sent_ms, now_ms, queue = 0;
    int exit = relay_exit_number(ev);
    if (wire_properties_read(ev->properties, &p, NULL) != 0 ||
        !wire_find(p.headers, LAST_HOP_PING_HEADER, &f) || !wire_field_int(&f, &sent_ms))
        return false;
    if (sent_ms == RELAY_PROBE_MS)
        return true;
    if (!runtime_now_ms(relay->runtime, &now_ms))
        now_ms = sent_ms;
    /* Anybody who may publish to the queue can send one. */
    if (sent_ms <= 0 || sent_ms > TIMESTAMP_MAX_MS)
        return false;
    if (sent_ms >
        now_ms + AHEAD_MS) /* or another gateway heard before this one that the clock was set forward */
        return true;
    if (wire_find(p.headers, RELAY_PING_QUEUE_HEADER, &f) && wire_field_int(&f, &queue) && queue >= 1 &&
        queue <= LAST_HOP_QUEUES)
        note_ping(&relay->last_hop_ping_ms[queue - 1], sent_ms, now_ms);
    else if (exit > 0)
        note_ping(&relay->handover->ping_ms[exit - 1], sent_ms, now_ms);
    /* An old one says nothing of now. */
    int64_t at_ms = clock_monotonic_ms() - (now_ms > sent_ms ? now_ms - sent_ms : 0);
    *heard_ms = at_ms > *heard_ms ? at_ms : *heard_ms;
    return true;
}
