/* postdate drop-topology: what gateways have declared in RabbitMQ goes, when Postdate is to be removed. */
#include "amqp/inspect/inspect.h"
#include "amqp/topology/last_hop.h"
#include "amqp/topology/owner.h"
#include "amqp/topology/topology.h"
#include "amqp/topology/topology_front.h"
#include "amqp/topology/topology_retry.h"
#include "amqp/topology/transport.h"
#include "core/message/dead_letter.h"
#include "gateway/cli/cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WAIT_MS 10000
#define READ_BY_SOMEBODY "queue %s has a consumer: stop all gateways, and what else reads there"

static const struct transport *const transports[] = {&transport_native, &transport_plugin, &transport_ttl};
#define TRANSPORTS (sizeof transports / sizeof transports[0])

struct removal {
    const struct config *config;
    struct broker *broker;
    bool really, purge;
    char read[256]; /* a queue that has a consumer, or "" */
    int queues, exchanges, full;
    uint32_t messages;
};

typedef int visit_fn(struct removal *r, const char *name, struct err *e);

/* --- what there may be */

static int each_queue(struct removal *r, visit_fn *visit, struct err *e)
{
    char expired[300], timed[300], name[TRANSPORT_NAME_SIZE];
    const char *intake = r->config->intake.queue;
    snprintf(expired, sizeof expired, "%s.expired", intake);
    snprintf(timed, sizeof timed, "%s" TOPOLOGY_TIMED_SUFFIX, intake);
    const char *const names[] = {intake,
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
        if (visit(r, names[i], e) != 0)
            return -1;
    for (size_t t = 0; t < TRANSPORTS; t++)
        for (size_t i = 0; transports[t]->queue(i, name); i++)
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

/* A delivery exchange of the user's own has bindings of the user's. */
static bool is_ours(const char *exchange)
{
    return strncmp(exchange, "postdate.", 9) == 0;
}

static int each_other_exchange(struct removal *r, visit_fn *visit, struct err *e)
{
    static const char *const names[] = {LAST_HOP_EXCHANGE, LAST_HOP_UNROUTED, DEAD_LETTER_EXCHANGE,
                                        RETURN_EXCHANGE,   OWNER_EXCHANGE,    TOPOLOGY_SORT,
                                        TOPOLOGY_PLAIN};
    const char *delivery = r->config->delivery.exchange, *name;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (visit(r, names[i], e) != 0)
            return -1;
    for (size_t t = 0; t < TRANSPORTS; t++)
        for (size_t i = 0; (name = transports[t]->exchange(i)) != NULL; i++)
            if (visit(r, name, e) != 0)
                return -1;
    return is_ours(delivery) ? visit(r, delivery, e) : 0;
}

/* --- what is done with each */

/* RabbitMQ does not tell how many messages a consumer has and did not acknowledge. */
static int look_at_queue(struct removal *r, const char *name, struct err *e)
{
    struct inspect_queue q;
    if (inspect_queue(r->broker, name, &q, e) != 0)
        return -1;
    if (!q.exists)
        return 0;
    if (q.consumers > 0 && r->really)
        return err_set(e, ERR_BUSY, READ_BY_SOMEBODY, name);
    if (q.consumers > 0)
        snprintf(r->read, sizeof r->read, "%s", name);
    bool full = q.ready > 0 && !r->purge;
    if (full || q.ready > 0 || !r->really)
        printf("%s queue %s%s (%" PRIu32 " message%s)\n", full ? "keep  " : "delete", name,
               full ? ": it is not empty" : "", q.ready, q.ready == 1 ? "" : "s");
    r->messages += q.ready;
    r->full += full;
    r->queues += !full && !r->really;
    return 0;
}

/* Somebody may have published there since it was looked at. */
static int delete_queue(struct removal *r, const char *name, struct err *e)
{
    struct inspect_queue q;
    if (inspect_queue(r->broker, name, &q, e) != 0)
        return -1;
    if (!q.exists)
        return 0;
    if (q.consumers > 0 || (q.ready > 0 && !r->purge))
        return err_set(e, ERR_BUSY, "queue %s is in use meanwhile: look at it, and try again", name);
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
    return r->really ? broker_delete_exchange(r->broker, name, e) : 0;
}

/* The intake's exchanges first: who still publishes is refused, and nothing more comes into a queue that
 * goes.
 */
static int remove_all(struct removal *r, struct err *e)
{
    if (each_queue(r, look_at_queue, e) != 0)
        return -1;
    if (r->really && r->full > 0)
        return 0;
    if (each_intake_exchange(r, delete_exchange, e) != 0 ||
        (r->really && each_queue(r, delete_queue, e) != 0))
        return -1;
    return each_other_exchange(r, delete_exchange, e);
}

static int report(const struct removal *r)
{
    printf("%d queue%s and %d exchange%s %s\n", r->queues, r->queues == 1 ? "" : "s", r->exchanges,
           r->exchanges == 1 ? "" : "s", r->really ? "deleted" : "would be deleted (--yes does it)");
    if (r->read[0] != '\0')
        cli_say(READ_BY_SOMEBODY, r->read);
    if (r->full == 0)
        return r->read[0] != '\0' ? 75 : 0;
    cli_say("%d queue%s not empty, with %" PRIu32 " message%s: nothing is deleted before. Consume or publish "
            "them, or give --purge to lose them",
            r->full, r->full == 1 ? " is" : "s are", r->messages, r->messages == 1 ? "" : "s");
    return r->read[0] != '\0' ? 75 : 1;
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
    r.config = &cli->config;
    r.broker = cli_broker_open(&cli->config, "postdate drop-topology", WAIT_MS, &e);
    int rc = r.broker != NULL ? remove_all(&r, &e) : -1;
    broker_close(r.broker);
    return rc != 0 ? cli_fail(&e) : report(&r);
}

const struct command command_drop_topology = {
    .name = "drop-topology",
    .synopsis = "[--yes] [--purge]",
    .summary = "Delete what gateways declared in RabbitMQ, to remove Postdate",
    .help = "      --yes           do it; without, only say what would be deleted\n"
            "      --purge         also queues that hold messages, which are lost then\n\n"
            "In the vhost of amqp.url. The database is left as it is. Refuses while its queues have\n"
            "consumers, or messages without --purge. Consumers' queues stay; their bindings to "
            "postdate.delivery go with that exchange.\n",
    .run = run_drop_topology,
};
