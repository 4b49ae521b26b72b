/* Which of several exit queues can be read.
 *
 * All consumers of the relay share a channel. RabbitMQ stops that at a queue without a leader, and closes it
 * at one that it could not bring back. So a message goes to each queue first, by a connection of its own, for
 * such a queue stops the channel of who publishes, too. What is confirmed has a leader. Of a queue that
 * cannot be asked nothing is known, and it is read. */
#include "amqp/topology/topology.h"
#include "core/base/clock.h"
#include "gateway/relay/relay_internal.h"
#include "gateway/runtime/failing.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"

#define PAUSE_MS 5
#define FIRST_MS 1000 /* so long the answers of all are waited for, while none is read … */
#define AGAIN_MS 300  /* … and those of a few, while the others wait to be read */
#define EVERY_MS 5000

struct probe {
    struct broker *broker;
    char queue[TOPOLOGY_EXIT_NAME_SIZE];
    bool answered, readable;
};

static void answer(struct probe *p, bool readable)
{
    p->answered = true;
    p->readable = readable;
}

static void ask(struct reader *r, struct probe *p)
{
    const struct broker_options o = sessions_broker_options(r->runtime, "postdate relay probe");
    struct buf properties;
    struct err e = {0};
    uint64_t tag;
    buf_init(&properties, 200);
    relay_put_ping(&properties, RELAY_PROBE_MS, 0);
    p->broker = broker_open(&o, &e);
    if (!p->broker || broker_confirm_select(p->broker, &e) != 0 ||
        broker_publish_to_queue(p->broker, p->queue, &properties, (struct bytes){0}, &tag, &e) != 0 ||
        broker_flush(p->broker, &e) != 0) {
        failing_note("relay: whether an exit queue gives what it holds", &e);
        answer(p, true);
    }
    buf_free(&properties);
}

/* RabbitMQ refuses a message where a policy has the queue full, and where it could not bring the queue back:
 * then it says that there is nothing in it. */
static bool holds_some(const struct probe *p)
{
    uint32_t ready, consumers;
    struct err e;
    return broker_look_at_queue(p->broker, p->queue, &ready, &consumers, &e) == 0 && ready > 0;
}

static void hear(struct reader *r, struct probe *p)
{
    struct broker_event ev = {0};
    struct err e = {0};
    arena_reset(&r->arena);
    if (broker_next_event(p->broker, &r->arena, 0, 0, &ev, &e) != 0)
        answer(p, e.kind == ERR_PERMISSION);
    else if (ev.kind == BROKER_EVENT_ACK || ev.kind == BROKER_EVENT_BLOCKED)
        answer(p, true);
    else if (ev.kind == BROKER_EVENT_NACK)
        answer(p, holds_some(p));
}

/* Of these, the ones that can be read: a set of 1u << (number - 1). */
static unsigned probe(struct reader *r, unsigned wanted, int64_t wait_ms)
{
    struct probe probes[EXIT_QUEUES_MAX] = {0};
    unsigned readable = 0;
    for (int i = 0; i < EXIT_QUEUES_MAX; i++) {
        probes[i].answered = (wanted & 1u << i) == 0;
        topology_exit_queue(i + 1, probes[i].queue);
        if (!probes[i].answered)
            ask(r, &probes[i]);
    }
    int64_t end_ms = clock_monotonic_ms() + wait_ms;
    for (bool waits = true; waits && clock_monotonic_ms() < end_ms;) {
        waits = false;
        for (int i = 0; i < EXIT_QUEUES_MAX; i++) {
            if (!probes[i].answered)
                hear(r, &probes[i]);
            waits |= !probes[i].answered;
        }
        if (waits)
            clock_nap_ms(PAUSE_MS);
    }
    for (int i = 0; i < EXIT_QUEUES_MAX; i++) {
        readable |= probes[i].readable ? 1u << i : 0;
        broker_drop(probes[i].broker);
    }
    r->probed_ms = clock_monotonic_ms();
    return readable;
}

void relay_probe_all(struct reader *r)
{
    int queues = atomic_load(&r->handover->exit_queues);
    unsigned all = (1u << queues) - 1, readable = queues > 1 ? probe(r, all, FIRST_MS) : all;
    /* As with a single one, RabbitMQ ends what waits for them. */
    atomic_store(&r->relay->left_out, readable ? all & ~readable : 0);
}

void relay_probe_again(struct reader *r)
{
    unsigned out = atomic_load(&r->relay->left_out);
    if (out && clock_monotonic_ms() - r->probed_ms >= EVERY_MS)
        atomic_fetch_and(&r->relay->left_out, ~probe(r, out, AGAIN_MS));
}
