/* postdate drop-topology: what gateways have declared in RabbitMQ goes, when Postdate is to be removed. */
#include "amqp/inspect/inspect.h"
#include "amqp/topology/topology.h"
#include "amqp/topology/transport.h"
#include "core/base/names.h"
#include "core/message/dead_letter.h"
#include "core/message/envelope.h"
#include "gateway/cli/command.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WAIT_MS 10000

struct removal {
    const struct config *config;
    struct broker *broker, *probe;
    bool really, purge;
    int queues, exchanges;
    int rungs;       /* of the queues, those that are empty rungs of the ladder */
    int full, taken; /* queues that are not empty, that have consumers: nothing is deleted */
    uint32_t messages;
};

typedef int visit_fn(struct removal *r, const char *name, struct err *e);

/* --- what there may be */

/* Those beside the first intake queue: as many as are configured, and up to the first that is missing. */
static int each_shard(struct removal *r, visit_fn *visit, struct err *e)
{
    char name[SHARDS_NAME_SIZE];
    for (int i = 2; i <= SHARDS_MAX; i++) {
        struct inspect_queue q;
        shards_queue_name(r->config->intake.queue, i, name);
        if (inspect_queue(r->broker, name, &q, e) != 0)
            return -1;
        if (!q.exists && i > r->config->intake.queues)
            return 0;
        if (visit(r, name, e) != 0)
            return -1;
    }
    return 0;
}

static int each_queue(struct removal *r, visit_fn *visit, struct err *e)
{
    char expired[300], timed[300], name[TRANSPORT_NAME_SIZE], exit[TOPOLOGY_EXIT_NAME_SIZE];
    const char *intake = r->config->intake.queue;
    snprintf(expired, sizeof expired, "%s.expired", intake);
    snprintf(timed, sizeof timed, "%s" TOPOLOGY_TIMED_SUFFIX, intake);
    const char *const names[] = {intake,
                                 timed,
                                 broker_names.intake_delayed,
                                 expired,
                                 broker_names.control,
                                 broker_names.history,
                                 broker_names.exit,
                                 broker_names.exit_broker,
                                 broker_names.exit_broker_2,
                                 broker_names.receipts,
                                 broker_names.last_unrouted,
                                 broker_names.retry,
                                 broker_names.rejected};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (visit(r, names[i], e) != 0)
            return -1;
    if (each_shard(r, visit, e) != 0)
        return -1;
    for (int i = 2; i <= EXIT_QUEUES_MAX; i++) {
        topology_exit_queue(i, exit);
        if (visit(r, exit, e) != 0)
            return -1;
    }
    for (size_t t = 0; t < TRANSPORT_COUNT; t++)
        for (size_t i = 0; transport_all[t]->queue && transport_all[t]->queue(i, name); i++)
            if (visit(r, name, e) != 0)
                return -1;
    return 0;
}

static int each_intake_exchange(struct removal *r, visit_fn *visit, struct err *e)
{
    const struct config *c = r->config;
    for (size_t i = 0; i < c->route_count; i++)
        if (visit(r, c->routes[i].intake_exchange, e) != 0)
            return -1;
    return visit(r, c->intake.exchange, e);
}

/* A delivery exchange of the user's own has bindings of the user's, and another Postdate may use it. */
static bool is_ours(const char *exchange)
{
    return strncmp(exchange, broker_names.own, strlen(broker_names.own)) == 0;
}

static int each_other_exchange(struct removal *r, visit_fn *visit, struct err *e)
{
    static const char *const names[] = {
        broker_names.last,    broker_names.last_unrouted, broker_names.retry,
        broker_names.returns, broker_names.owner,         broker_names.sort,
        broker_names.plain,   broker_names.exit_shards,   broker_names.expired};
    for (size_t i = 0; i < TOPOLOGY_WAYS; i++)
        if (visit(r, topology_intake_ways[i].exchange, e) != 0)
            return -1;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (visit(r, names[i], e) != 0)
            return -1;
    for (size_t t = 0; t < TRANSPORT_COUNT; t++)
        for (size_t i = 0; transport_all[t]->exchanges[i] != NULL; i++)
            if (visit(r, transport_all[t]->exchanges[i], e) != 0)
                return -1;
    return 0;
}

/* --- what is done with each */

/* Alike, and up to 75 of them. */
static bool is_rung(const char *queue)
{
    return strncmp(queue, broker_names.ladder, strlen(broker_names.ladder)) == 0;
}

/* How far the database has come: that is no message. */
static bool is_note(const char *queue)
{
    return strcmp(queue, broker_names.history) == 0;
}

/* RabbitMQ does not tell how many messages a consumer has and did not acknowledge. */
static int look_at_queue(struct removal *r, const char *name, struct err *e)
{
    struct inspect_queue q;
    if (inspect_queue(r->broker, name, &q, e) != 0)
        return -1;
    if (!q.exists)
        return 0;
    if (is_note(name))
        q.ready = 0;
    bool taken = q.consumers > 0, full = q.ready > 0 && !r->purge, rung = q.ready == 0 && is_rung(name);
    r->messages += full ? q.ready : 0;
    r->taken += taken;
    r->full += full;
    r->queues += !r->really;
    r->rungs += !taken && rung;
    if (taken || full)
        printf("keep   queue %s: %s (%" PRIu32 " message%s)\n", name,
               taken ? "it has a consumer" : "it is not empty", q.ready, q.ready == 1 ? "" : "s");
    else if (q.ready > 0 || (!r->really && !rung))
        printf("delete queue %s (%" PRIu32 " message%s)\n", name, q.ready, q.ready == 1 ? "" : "s");
    return 0;
}

/* A quorum queue without leader looks empty, and RabbitMQ deletes it with all that it holds
 * (`rabbit_quorum_queue`: `stat`, `delete`). Only with a leader it takes a consumer. */
static int prove_led(struct removal *r, const char *name, struct err *e)
{
    struct inspect_queue q;
    struct err why;
    if (inspect_queue(r->probe, name, &q, e) != 0)
        return -1;
    if (!q.exists)
        return 0;
    /* Ended at once, or it may still be counted when the queue is to go. */
    if (broker_consume(r->probe, name, name, 1, &why) == 0 &&
        broker_cancel_consume(r->probe, name, &why) == 0)
        return 0;
    return err_set(e, ERR_BUSY, "cannot check whether queue %s is empty, so nothing is deleted: %s", name,
                   why.text);
}

/* What a consumer got goes back with the connection. */
static int prove_all_led(struct removal *r, struct err *e)
{
    r->probe = cli_broker_open(r->config, "postdate drop-topology", WAIT_MS, e);
    int rc = r->probe != NULL ? each_queue(r, prove_led, e) : -1;
    broker_close(r->probe);
    return rc;
}

/* Somebody may have published there since it was looked at. */
static int delete_queue(struct removal *r, const char *name, struct err *e)
{
    struct inspect_queue q;
    if (inspect_queue(r->broker, name, &q, e) != 0)
        return -1;
    if (!q.exists)
        return 0;
    if (q.consumers > 0 || (q.ready > 0 && !r->purge && !is_note(name)))
        return err_set(e, ERR_BUSY, "queue %s is in use now: check it, and try again", name);
    r->queues++;
    return broker_delete_queue(r->broker, name, e);
}

static int delete_exchange(struct removal *r, const char *name, struct err *e)
{
    bool exists;
    if (inspect_exchange(r->broker, name, &exists, e) != 0)
        return -1;
    if (!exists)
        return 0;
    if (!r->really)
        printf("delete exchange %s\n", name);
    r->exchanges++;
    return r->really ? broker_delete_exchange(r->broker, name, false, e) : 0;
}

/* It has the bindings of consumers, who may listen to another Postdate, too. The last one: RabbitMQ closes
 * the channel where it refuses. */
static int delete_delivery(struct removal *r, struct err *e)
{
    const char *name = r->config->delivery.exchange;
    bool exists;
    if (!is_ours(name))
        return 0;
    if (inspect_exchange(r->broker, name, &exists, e) != 0)
        return -1;
    if (!exists)
        return 0;
    if (!r->really) {
        printf("delete exchange %s, if nothing is bound to it\n", name);
    } else if (broker_delete_exchange(r->broker, name, true, e) == 0) {
        r->exchanges++;
    } else if (e->kind == ERR_CONFIG) {
        printf("keep   exchange %s: consumers' queues are bound to it\n", name);
    } else {
        return -1;
    }
    return 0;
}

static bool is_blocked(const struct removal *r)
{
    return r->taken + r->full > 0;
}

/* The intake's exchanges first: who still publishes is refused, and nothing more comes into a queue that
 * goes.
 */
static int remove_all(struct removal *r, struct err *e)
{
    if (each_queue(r, look_at_queue, e) != 0)
        return -1;
    if (r->really && is_blocked(r))
        return 0;
    if (r->really && prove_all_led(r, e) != 0)
        return -1;
    if (r->rungs > 0 && !r->really)
        printf("delete %d queue%s %s* (0 messages)\n", r->rungs, r->rungs == 1 ? "" : "s",
               broker_names.ladder);
    if (each_intake_exchange(r, delete_exchange, e) != 0 ||
        (r->really && each_queue(r, delete_queue, e) != 0))
        return -1;
    return each_other_exchange(r, delete_exchange, e) != 0 ? -1 : delete_delivery(r, e);
}

static int report(const struct removal *r)
{
    if (is_blocked(r)) {
        const char *done = r->really ? "is deleted" : "would be deleted";
        if (r->taken > 0) {
            printf("nothing %s while %d queue%s\n", done, r->taken,
                   r->taken == 1 ? " has a consumer" : "s have consumers");
            cli_say("stop all gateways and all other consumers of them");
        }
        if (r->full > 0) {
            printf("nothing %s while %d queue%s not empty\n", done, r->full, r->full == 1 ? " is" : "s are");
            cli_say("consume or publish %" PRIu32 " message%s, or give --purge to lose them", r->messages,
                    r->messages == 1 ? "" : "s");
        }
        return r->taken > 0 ? 75 : 1;
    }
    printf("%d queue%s and %d exchange%s %s\n", r->queues, r->queues == 1 ? "" : "s", r->exchanges,
           r->exchanges == 1 ? "" : "s", r->really ? "deleted" : "would be deleted (--yes does it)");
    return 0;
}

static int run_drop_topology(struct cli *cli, void *order)
{
    struct removal *r = order;
    struct err e;
    int code = cli_load_config(cli);
    if (code != 0)
        return code;
    r->config = &cli->config;
    r->broker = cli_broker_open(&cli->config, "postdate drop-topology", WAIT_MS, &e);
    int rc = r->broker != NULL ? remove_all(r, &e) : -1;
    broker_close(r->broker);
    return rc != 0 ? cli_fail(cli, &e) : report(r);
}

static const struct cli_option options[] = {
    {"yes", NULL, "delete; without it, only print what would be deleted", CLI_TAKE(flag, removal, really)},
    {"purge", NULL, "also delete queues that hold messages, which are then lost",
     CLI_TAKE(flag, removal, purge)},
    {0},
};

const struct command command_drop_topology = {
    .name = "drop-topology",
    .synopsis = "[--yes] [--purge]",
    .summary = "Delete the exchanges and queues that gateways declared in RabbitMQ",
    .notes = "In the vhost of amqp.url, with the names of amqp.prefix. The database is not changed.\n"
             "Fails while its queues have consumers or, without --purge, messages. Consumers' queues\n"
             "stay, and postdate.delivery while one is bound to it.",
    .options = options,
    .run = run_drop_topology,
    .order_size = sizeof(struct removal),
};
