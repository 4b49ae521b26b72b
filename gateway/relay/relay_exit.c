/* The exit queues, each watched for itself: which are there, read, bound, silent or dead, and up to when all
 * that was in them has been taken (docs/internals/relay.md). */
#include "amqp/topology/topology.h"
#include "amqp/topology/topology_shards.h"
#include "gateway/relay/relay_rescue.h"
#include "gateway/runtime/failing.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"

#define SURPLUS_MS (4 * RELAY_ASIDE_MS)
#define SILENT_MS 10000
#define FORGOTTEN_MS 20000
#define DEAD_MS 30000 /* so long an exit queue gives nothing: what is overdue comes from the database */
#define DEAD_PING_MS 10000
#define MOVABLE_LOOKS 3 /* by then nobody declares by what was known before */

/* Whoever publishes first binds them anew. */
static void declare_anew(struct relay_rescue *rescue)
{
    atomic_fetch_add(&rescue->handover->topology_epoch, 1);
    notifier_notify(&rescue->pipeline->handover.notifier);
}

/* --- how many */
static const char declaring[] = "declaring exit queues", binding[] = "binding exit queues";

/* Before any message can go there, and before anybody reads them. */
static bool declare_new(struct relay_rescue *rescue, int queues)
{
    struct err e = {0};
    if (queues <= atomic_load(&rescue->handover->exit_queues))
        return true;
    struct broker *b = relay_line(rescue, RELAY_LINE, &e);
    if (b && topology_declare_exit(b, queues, &e) == 0) {
        failing_over(declaring);
        return true;
    }
    relay_line_check(rescue, RELAY_LINE, &e);
    failing_note(declaring, &e);
    return false;
}

static void say_skipped(const struct err *why)
{
    log_warning("exit.queues: a host of amqp.url is not asked for its plugins and bindings: %s", why->text);
}

static int move_exit(void *ctx, struct err *e)
{
    struct relay_rescue *rescue = ctx;
    const struct broker_options o = sessions_broker_options(rescue->runtime, "postdate exit queues");
    struct broker *b = sessions_open_broker(rescue->runtime, "postdate exit queues", e);
    if (!b)
        return -1;
    int rc = transport_move_exit(b, &o, say_skipped, e);
    broker_close(b);
    if (rc == 0)
        clock_nap_ms(SHARDS_SETTLE_MS);
    return rc;
}

/* Until all gateways read all of them, nothing goes there. Before what comes out is moved, some time passes
 * in which no gateway binds it by what it knew before. */
static int bind_wanted(struct relay_rescue *rescue, const struct relay_marks *m, struct err *e)
{
    bool move = m->exit_bound < 0;
    if (m->exit_bound == 0 || m->exit_bound == m->exit_wanted || !m->all_know) {
        rescue->movable = 0;
        return 0;
    }
    if (move && ++rescue->movable < MOVABLE_LOOKS)
        return 0;
    rescue->movable = 0;
    if (relay_bind_exit(rescue->pg, move ? move_exit : NULL, rescue, e) == 0) {
        failing_over(binding);
        return 0;
    }
    if (pg_is_broken(rescue->pg))
        return -1;
    failing_note(binding, e);
    err_clear(e);
    return 0;
}

int relay_exit_follow(struct relay_rescue *rescue, const struct relay_marks *m, struct err *e)
{
    struct handover *handover = rescue->handover;
    if (!declare_new(rescue, m->queues))
        return 0;
    bool changed = atomic_load(&handover->exit_bound) != m->exit_bound;
    handover_know_exit(handover, m->queues, m->exit_bound);
    if (changed)
        declare_anew(rescue);
    return bind_wanted(rescue, m, e);
}

/* --- pings */
static void keep_alive(struct relay_rescue *rescue, int number)
{
    struct err e = {0};
    if (rescue->exits[number - 1].line.broker && !relay_line(rescue, number, &e))
        relay_line_check(rescue, number, &e);
}

/* Who hears them knows that this gateway has a database. In a dead queue they pile up: fewer then. */
void relay_exit_ping(struct relay_rescue *rescue, int64_t now_ms)
{
    int64_t clock_ms = clock_monotonic_ms();
    int queues = atomic_load(&rescue->handover->exit_queues);
    bool failed = false;
    for (int i = 0; i < queues; i++) {
        int number = (rescue->pings + i) % queues + 1;
        struct exit_watch *w = &rescue->exits[number - 1];
        if (w->said_dead && w->ping_sent && clock_ms - w->pinged_ms < DEAD_PING_MS) {
            keep_alive(rescue, number);
            continue;
        }
        /* Where RabbitMQ cannot be reached, to find that out once takes long enough. */
        w->ping_sent = (!failed || w->line.broker) && relay_ping_exit(rescue, number, now_ms);
        w->pinged_ms = clock_ms;
        failed |= !w->ping_sent;
    }
    rescue->pings = (rescue->pings + 1) % EXIT_QUEUES_MAX;
}

int64_t relay_exit_taken_ms(const struct relay_rescue *rescue, const struct relay_marks *m)
{
    int64_t least_ms = INT64_MAX;
    for (int i = 0; i < m->queues; i++)
        if (!rescue->exits[i].dead && m->ping_ms[i] < least_ms)
            least_ms = m->ping_ms[i];
    return least_ms == INT64_MAX ? 0 : least_ms;
}

/* --- consumers */
/* Of an exit queue, whoever they are; -1: it does not say. While a quorum queue has no leader, RabbitMQ
 * answers with none (rabbit_quorum_queue: stat), and so does not say either: this is asked only where pings
 * come to some. */
static int count_consumers(struct relay_rescue *rescue, int number)
{
    char queue[TOPOLOGY_EXIT_NAME_SIZE];
    uint32_t ready, consumers;
    struct err e = {0};
    topology_exit_queue(number, queue);
    struct broker *b = relay_line(rescue, number, &e);
    if (b && broker_look_at_queue(b, queue, &ready, &consumers, &e) == 0)
        return consumers > 0 ? (int)consumers : -1;
    relay_line_check(rescue, number, &e);
    return -1;
}

/* If not, only a ping counts that was sent later than this: what one of the others took and gives back,
 * proofs among it, comes before that ping. Others may be of a gateway that has lost its database and delivers
 * all the same. But RabbitMQ also goes on counting those that came by a node which has died, until that is
 * back. A gateway notes those that it lost itself. Of the others it is assumed after a while that they are
 * dead: a gateway without a database has stopped taking messages by then (relay.c). */
bool relay_exit_all_known(struct relay_rescue *rescue, const struct relay_marks *m)
{
    int64_t clock_ms = clock_monotonic_ms();
    bool surplus = false;
    for (int number = 1; number <= m->queues; number++) {
        if (rescue->exits[number - 1].dead)
            continue;
        int counted = count_consumers(rescue, number), noted = m->consumers[number - 1];
        if (counted < 0)
            return false;
        if (counted <
            noted) /* those of a dead node are gone, or RabbitMQ has forgotten some: relay_exit_watch */
            atomic_store(&rescue->relay->lost_consumers[number - 1], 0);
        surplus |= counted > noted;
    }
    if (!surplus)
        rescue->surplus_ms = 0;
    else if (rescue->surplus_ms == 0)
        rescue->surplus_ms = clock_ms;
    return !surplus || clock_ms - rescue->surplus_ms > SURPLUS_MS;
}

/* Connects the relay anew. */
static void renew_consumers(struct relay_rescue *rescue)
{
    atomic_store(&rescue->relay->forgotten, true);
    notifier_notify(&rescue->pipeline->relay_notifier);
}

/* Pings are sent through it, and none comes to any gateway. Has RabbitMQ forgotten the consumers, as it does
 * when a node was cut off? They are made anew. */
static void mind_consumers(struct relay_rescue *rescue, int number, int64_t silent_ms)
{
    struct exit_watch *w = &rescue->exits[number - 1];
    int64_t clock_ms = clock_monotonic_ms();
    bool out = (atomic_load(&rescue->relay->left_out) & 1u << (number - 1)) != 0;
    if (out || silent_ms <= FORGOTTEN_MS || clock_ms - w->renewed_ms <= SILENT_MS)
        return;
    w->renewed_ms = clock_ms;
    if (atomic_load(&rescue->handover->consumers[number - 1]) > 0)
        renew_consumers(rescue);
}

static void say_dead(struct exit_watch *w, int number, bool heard)
{
    char queue[TOPOLOGY_EXIT_NAME_SIZE];
    topology_exit_queue(number, queue);
    if (w->dead && !w->said_dead) {
        w->said_dead = true;
        log_warning(
            "nothing has come out of %s for %d s: no more messages are handed over, and what is overdue "
            "there is delivered from the database. If RabbitMQ does not bring that queue back, delete "
            "it: gateways declare it again",
            queue, DEAD_MS / 1000);
    } else if (heard && w->said_dead) {
        w->said_dead = false;
        log_info("messages come out of %s again", queue);
    }
}

/* RabbitMQ may have lost it, or its majority: after a while what is overdue is rescued without waiting for a
 * ping through it. That is safe: what comes out after all is late by then, and is looked up. Returns for how
 * long it has been silent. */
static int64_t watch_queue(struct relay_rescue *rescue, int number, const struct relay_marks *m)
{
    struct exit_watch *w = &rescue->exits[number - 1];
    int64_t clock_ms = clock_monotonic_ms(), ping_ms = m->ping_ms[number - 1];
    /* In the future: the database's clock was set back. */
    bool heard = ping_ms > w->newest_ping_ms || w->newest_ping_ms > m->now_ms;
    if (heard)
        w->newest_ping_ms = ping_ms;
    if (heard || !w->ping_sent)
        w->unheard_ms = 0;
    else if (w->unheard_ms == 0)
        w->unheard_ms = clock_ms;
    int64_t silent_ms = w->unheard_ms ? clock_ms - w->unheard_ms : 0;
    mind_consumers(rescue, number, silent_ms);
    w->dead = silent_ms > DEAD_MS;
    say_dead(w, number, heard);
    return silent_ms;
}

/* While one that gets messages is silent, nothing more is handed over. */
bool relay_exit_watch(struct relay_rescue *rescue, const struct relay_marks *m)
{
    bool silent = false, all_dead = true;
    for (int number = 1; number <= m->queues; number++) {
        bool used = number == 1 || number <= m->exit_bound;
        silent |= watch_queue(rescue, number, m) > SILENT_MS && used;
        all_dead &= rescue->exits[number - 1].dead;
    }
    atomic_store(&rescue->handover->exit_silent, silent);
    return all_dead;
}
