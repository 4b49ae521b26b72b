#include "gateway/deliver/handover.h"
#include "amqp/topology/transport.h"
#include "core/message/ttl_ladder.h"
#include "gateway/runtime/sessions.h"

#define MARK_VALID_MS 10000 /* the marks in the database are known only after a recent query */

_Static_assert(HANDOVER_SLACK_MS >= TTL_LADDER_RADIX * TTL_LADDER_GRAIN_MS, "no rung of level 0 is needed");

void handover_open(struct handover *handover, struct runtime *rt)
{
    handover->runtime = rt;
    atomic_init(&handover->last_hop.queue, -1);
    atomic_init(&handover->exit.queues, 1);
    atomic_init(&handover->exit.bound, TRANSPORT_EXIT_UNKNOWN);
}

int handover_consumers(struct handover *handover)
{
    int all = 0;
    for (int i = 0; i < EXIT_QUEUES_MAX; i++)
        all += atomic_load(&handover->exit.consumers[i]);
    return all;
}

int64_t handover_ping_ms(struct handover *handover)
{
    int64_t least_ms = INT64_MAX;
    for (int i = 0; i < atomic_load(&handover->exit.queues); i++) {
        int64_t ms = atomic_load(&handover->exit.ping_ms[i]);
        if (atomic_load(&handover->exit.consumers[i]) > 0 && ms < least_ms)
            least_ms = ms;
    }
    return least_ms == INT64_MAX ? 0 : least_ms;
}

void handover_know_exit(struct handover *handover, int queues, int bound)
{
    atomic_store(&handover->exit.bound, bound);
    if (queues > atomic_load(&handover->exit.queues))
        atomic_store(&handover->exit.queues, queues);
    atomic_store(&handover->exit.known_ms, clock_monotonic_ms());
}

bool handover_set_policy(struct handover *handover, enum policy_state state)
{
    atomic_store(&handover->runtime->metrics.policy_in_the_way, state == POLICY_IN_THE_WAY);
    return atomic_exchange(&handover->entry.policy, (int)state) != (int)state;
}

void handover_set_ready(struct handover *handover, bool ready)
{
    atomic_store(&handover->entry.ready, ready);
    notifier_notify(&handover->runtime->handover_feeder_notifier);
}

bool handover_is_open(const struct handover *handover)
{
    return atomic_load(&handover->entry.ready) && !atomic_load(&handover->entry.exit_silent) &&
           atomic_load(&handover->entry.policy) == POLICY_NONE;
}

static bool is_fresh(int64_t known_ms)
{
    return clock_monotonic_ms() - known_ms <= MARK_VALID_MS;
}

int64_t handover_take_room(struct handover *handover, int64_t most)
{
    int64_t room = atomic_fetch_sub(&handover->entry.room, most);
    int64_t taken = room < 0 ? 0 : room < most ? room : most;
    handover_give_room(handover, most - taken);
    return taken;
}

void handover_give_room(struct handover *handover, int64_t unused)
{
    atomic_fetch_add(&handover->entry.room, unused);
}

struct transport_options handover_transport_options(struct handover *handover)
{
    int queue = atomic_load(&handover->last_hop.queue);
    if (!is_fresh(atomic_load(&handover->exit.noted_ms)))
        queue = 0;
    bool known = is_fresh(atomic_load(&handover->exit.known_ms));
    return (struct transport_options){
        .window_ms = config_declared_window_ms(handover->runtime->config),
        .exit_queues = atomic_load(&handover->exit.queues),
        .exit_bound = known ? atomic_load(&handover->exit.bound) : TRANSPORT_EXIT_UNKNOWN,
        .exact = handover->runtime->config->handover.last_hop == LAST_HOP_RABBITMQ,
        .last_hop_queue = queue > 0 ? queue : 0};
}

int handover_declare_last_hop(struct handover *handover, struct err *e)
{
    struct broker *b = sessions_open_broker(handover->runtime, "postdate last hop", e);
    if (!b)
        return -1;
    int rc = topology_declare_parts(b, TOPOLOGY_EXIT | TOPOLOGY_LAST_HOP, 1, e);
    broker_close(b);
    return rc;
}

int64_t handover_rescue_before_ms(struct handover *handover)
{
    int64_t known_ms = atomic_load(&handover->exit.rescue_known_ms);
    if (known_ms == 0 || !is_fresh(known_ms))
        return 0;
    return atomic_load(&handover->exit.rescue_before_ms) - handover->runtime->config->handover.grace_ms;
}

void handover_set_rescue_before(struct handover *handover, int64_t before_ms, int64_t clock_ms)
{
    atomic_store(&handover->exit.rescue_before_ms, before_ms);
    atomic_store(&handover->exit.rescue_known_ms, clock_ms);
}
