/* postdate drop-topology: what gateways have declared in RabbitMQ goes, when Postdate is to be removed. */
#include "amqp/inspect/inspect.h"
#include "amqp/topology/topology.h"
#include "core/base/names.h"
#include "gateway/cli/command.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WAIT_MS 10000

struct removal {
    const struct config *config;
    struct broker *broker, *probe;
    bool really, purge;
    bool targets; /* what is deleted now: the queues that others dead-letter to, or all others */
    int queues, exchanges;
    int rungs;       /* of the queues, those that are empty rungs of the ladder */
    int full, taken; /* queues that are not empty, that have consumers: nothing is deleted */
    uint32_t messages;
};

typedef int visit_fn(struct removal *r, const struct topology_cursor *c, struct inspect_queue *q,
                     struct err *e);

/* Those beside the first intake queue: as many as are configured, and up to the first that is missing. */
static int each_queue(struct removal *r, visit_fn *visit, struct err *e)
{
    for (struct topology_cursor c = {.parts = TOPOLOGY_ALL, .kind = TOPOLOGY_QUEUE}; topology_next(&c);) {
        struct inspect_queue q;
        if (inspect_queue(r->broker, c.name, &q, e) != 0 || (q.exists && visit(r, &c, &q, e) != 0))
            return -1;
        if (!q.exists && (c.item->parts & TOPOLOGY_INTAKE) && c.number > r->config->intake.queues)
            c.number = c.item->most;
    }
    return 0;
}

/* RabbitMQ does not tell how many messages a consumer has and did not acknowledge. */
static int look_at_queue(struct removal *r, const struct topology_cursor *c, struct inspect_queue *q,
                         struct err *e)
{
    (void)e;
    if (c->item->parts & TOPOLOGY_HISTORY) /* how far the database has come: that is no message */
        q->ready = 0;
    bool taken = q->consumers > 0, full = q->ready > 0 && !r->purge;
    bool rung = q->ready == 0 && (c->item->parts & TOPOLOGY_LADDER); /* alike, and up to 75 of them */
    r->messages += full ? q->ready : 0;
    r->taken += taken;
    r->full += full;
    r->queues += !r->really;
    r->rungs += !taken && rung;
    if (taken || full)
        printf("keep   queue %s: %s (%" PRIu32 " message%s)\n", c->name,
               taken ? "it has a consumer" : "it is not empty", q->ready, q->ready == 1 ? "" : "s");
    else if (q->ready > 0 || (!r->really && !rung))
        printf("delete queue %s (%" PRIu32 " message%s)\n", c->name, q->ready, q->ready == 1 ? "" : "s");
    return 0;
}

/* A quorum queue without leader looks empty, and RabbitMQ deletes it with all that it holds
 * (`rabbit_quorum_queue`: `stat`, `delete`). Only with a leader it takes a consumer. */
static int prove_led(struct removal *r, const struct topology_cursor *c, struct inspect_queue *q,
                     struct err *e)
{
    const char *name = c->name;
    struct err why;
    (void)q;
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

/* Other queues dead-letter to it: what expires there while they go must find it. */
static bool is_target(const char *name)
{
    return strcmp(name, broker_names.rejected) == 0 || strcmp(name, intake_names.expired) == 0;
}

/* Somebody may have published there since it was looked at. */
static int delete_queue(struct removal *r, const struct topology_cursor *c, struct inspect_queue *q,
                        struct err *e)
{
    if (is_target(c->name) != r->targets)
        return 0;
    if (q->consumers > 0 || (q->ready > 0 && !r->purge && !(c->item->parts & TOPOLOGY_HISTORY)))
        return err_set(e, ERR_BUSY, "queue %s is in use now: check it, and try again", c->name);
    r->queues++;
    return broker_delete_queue(r->broker, c->name, e);
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

/* It has the bindings of consumers, who may listen to another Postdate, too; one of the user's own has the
 * user's. The last one: RabbitMQ closes the channel where it refuses. */
static int delete_delivery(struct removal *r, struct err *e)
{
    const char *name = r->config->delivery.exchange;
    bool exists;
    if (strncmp(name, broker_names.own, strlen(broker_names.own)) != 0)
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
 * goes. */
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
    for (size_t i = 0; i < r->config->route_count; i++)
        if (delete_exchange(r, r->config->routes[i].intake_exchange, e) != 0)
            return -1;
    if (delete_exchange(r, r->config->intake.exchange, e) != 0)
        return -1;
    for (int i = 0; r->really && i < 2; i++) {
        r->targets = i == 1;
        if (each_queue(r, delete_queue, e) != 0)
            return -1;
    }
    for (struct topology_cursor c = {.parts = TOPOLOGY_ALL, .kind = TOPOLOGY_EXCHANGE}; topology_next(&c);)
        if (delete_exchange(r, c.name, e) != 0)
            return -1;
    return delete_delivery(r, e);
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
             "stay, and postdate.delivery while one is bound to it.\n"
             "The exchanges of [route] are deleted, too; those of former routes stay.",
    .options = options,
    .run = run_drop_topology,
    .order_size = sizeof(struct removal),
};
