/* postdate drop-topology: what gateways have declared in RabbitMQ goes, when Postdate is to be removed. */
#include "amqp/inspect/inspect.h"
#include "amqp/topology/last_hop.h"
#include "amqp/topology/owner.h"
#include "amqp/topology/topology.h"
#include "amqp/topology/topology_front.h"
#include "amqp/topology/topology_retry.h"
#include "core/message/dead_letter.h"
#include "core/message/ttl_ladder.h"
#include "gateway/cli/cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WAIT_MS 10000

struct removal {
    struct broker *broker;
    bool really, purge;
    int queues, exchanges, kept;
    uint32_t messages;
};

static int remove_queue(struct removal *r, const char *name, struct err *e)
{
    struct inspect_queue q;
    if (inspect_queue(r->broker, name, &q, e) != 0)
        return -1;
    if (!q.exists)
        return 0;
    bool keep = q.ready > 0 && !r->purge;
    if (q.ready > 0 || !r->really)
        printf("%s queue %s%s (%" PRIu32 " message%s)\n", keep ? "keep  " : "delete", name,
               keep ? ": it is not empty" : "", q.ready, q.ready == 1 ? "" : "s");
    r->messages += q.ready;
    r->kept += keep;
    r->queues += !keep;
    return keep || !r->really ? 0 : broker_delete_queue(r->broker, name, e);
}

static int remove_exchange(struct removal *r, const char *name, struct err *e)
{
    bool exists;
    if (inspect_exchange(r->broker, name, &exists, e) != 0)
        return -1;
    if (!exists)
        return 0;
    if (!r->really)
        printf("delete exchange %s\n", name);
    r->exchanges++;
    return r->really ? broker_delete_exchange(r->broker, name, e) : 0;
}

static int remove_queues(struct removal *r, const struct config *c, struct err *e)
{
    char expired[300], timed[300], rung[TTL_LADDER_NAME_SIZE];
    snprintf(expired, sizeof expired, "%s.expired", c->intake.queue);
    snprintf(timed, sizeof timed, "%s" TOPOLOGY_TIMED_SUFFIX, c->intake.queue);
    const char *const names[] = {c->intake.queue,
                                 timed,
                                 expired,
                                 TOPOLOGY_CONTROL_QUEUE,
                                 TOPOLOGY_EXIT_QUEUE,
                                 last_hop_queue(1),
                                 last_hop_queue(2),
                                 LAST_HOP_RECEIPTS,
                                 LAST_HOP_UNROUTED,
                                 TOPOLOGY_RETRY_QUEUE,
                                 TOPOLOGY_REJECTED_QUEUE};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (remove_queue(r, names[i], e) != 0)
            return -1;
    for (int level = 0; level < TTL_LADDER_LEVELS_MAX; level++)
        for (int digit = 1; digit < TTL_LADDER_RADIX; digit++)
            if (remove_queue(r, ttl_ladder_queue(level, digit, rung), e) != 0)
                return -1;
    return 0;
}

/* A delivery exchange of the user's own has bindings of the user's. */
static bool is_ours(const char *exchange)
{
    return strncmp(exchange, "postdate.", 9) == 0;
}

static int remove_exchanges(struct removal *r, const struct config *c, struct err *e)
{
    const char *const names[] = {c->intake.exchange, "postdate.delayed", "postdate.ttl.exit",
                                 LAST_HOP_EXCHANGE,  LAST_HOP_UNROUTED,  DEAD_LETTER_EXCHANGE,
                                 RETURN_EXCHANGE,    OWNER_EXCHANGE,     "postdate.native",
                                 TOPOLOGY_SORT,      TOPOLOGY_PLAIN};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (remove_exchange(r, names[i], e) != 0)
            return -1;
    for (int level = 0; level < TTL_LADDER_LEVELS_MAX; level++)
        if (remove_exchange(r, ttl_ladder_exchange(level), e) != 0)
            return -1;
    for (size_t i = 0; i < c->route_count; i++)
        if (remove_exchange(r, c->routes[i].intake_exchange, e) != 0)
            return -1;
    return is_ours(c->delivery.exchange) ? remove_exchange(r, c->delivery.exchange, e) : 0;
}

static int refuse_while_used(struct removal *r, const struct config *c, struct err *e)
{
    struct inspect_queue q;
    if (inspect_queue(r->broker, c->intake.queue, &q, e) != 0)
        return -1;
    return q.exists && q.consumers > 0
               ? err_set(e, ERR_BUSY, "a gateway consumes %s: stop all gateways first", c->intake.queue)
               : 0;
}

/* Exchanges last: nothing that is still published may lose its way while a queue is there. */
static int remove_all(struct removal *r, const struct config *c, struct err *e)
{
    if (refuse_while_used(r, c, e) != 0 || remove_queues(r, c, e) != 0)
        return -1;
    return r->kept > 0 && r->really ? 0 : remove_exchanges(r, c, e);
}

static int report(const struct removal *r)
{
    printf("%d queue%s and %d exchange%s %s\n", r->queues, r->queues == 1 ? "" : "s", r->exchanges,
           r->exchanges == 1 ? "" : "s", r->really ? "deleted" : "would be deleted (--yes does it)");
    if (r->kept == 0)
        return 0;
    cli_say("%d queue%s kept, with %" PRIu32 " messages, and the exchanges with %s: consume or publish them, "
            "or give --purge to lose them",
            r->kept, r->kept == 1 ? " is" : "s are", r->messages, r->kept == 1 ? "it" : "them");
    return 1;
}

static int run_drop_topology(struct cli *cli, int argc, char **argv)
{
    static const struct option options[] = {
        {"yes", no_argument, NULL, 'y'}, {"purge", no_argument, NULL, 'p'}, CLI_LONG};
    struct removal r = {0};
    struct err e;
    int option, code;
    while ((option = getopt_long(argc, argv, CLI_SHORT, options, NULL)) != -1) {
        if (option == 'y')
            r.really = true;
        else if (option == 'p')
            r.purge = true;
        else if ((code = cli_common_option(cli, option, argv)) >= 0)
            return code;
    }
    if (optind < argc)
        return cli_usage(cli, "unexpected argument \"%s\"", argv[optind]);
    if ((code = cli_load_config(cli)) != 0)
        return code;
    r.broker = cli_broker_open(&cli->config, "postdate drop-topology", WAIT_MS, &e);
    int rc = r.broker != NULL ? remove_all(&r, &cli->config, &e) : -1;
    broker_close(r.broker);
    return rc != 0 ? cli_fail(&e) : report(&r);
}

const struct command command_drop_topology = {
    .name = "drop-topology",
    .synopsis = "[--yes] [--purge]",
    .summary = "Delete what gateways declared in RabbitMQ, to remove Postdate",
    .help =
        "      --yes           do it; without, only say what would be deleted\n"
        "      --purge         also queues that hold messages, which are lost then\n\n"
        "In the vhost of amqp.url. The database is left as it is. Refuses while a gateway runs. Consumers'\n"
        "queues stay; their bindings to postdate.delivery go with that exchange.\n",
    .run = run_drop_topology,
};
