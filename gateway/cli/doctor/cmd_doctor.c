/* Looks at everything that a gateway depends on, and says for each thing that is wrong what to do. */
#include "gateway/cli/command.h"
#include "gateway/cli/doctor/doctor_rabbit.h"

#include <stdio.h>
#include <stdlib.h>

enum need { NEED_CONFIG = 1, NEED_DATABASE = 2, NEED_SCHEMA = 4, NEED_BROKER = 8 };

static const struct check {
    const char *name; /* of the finding when the check is skipped */
    unsigned needs;
    void (*run)(struct doctor *d);
} checks[] = {
    {"config", 0, doctor_check_config},
    {"database.connection", NEED_CONFIG, doctor_check_database},
    {"database.pooling", NEED_CONFIG | NEED_DATABASE, doctor_check_pooling},
    {"database.server", NEED_CONFIG | NEED_DATABASE, doctor_check_server},
    {"database.schema", NEED_CONFIG | NEED_DATABASE, doctor_check_schema},
    {"database.rights", NEED_CONFIG | NEED_SCHEMA, doctor_check_rights},
    {"database.roles", NEED_CONFIG | NEED_SCHEMA, doctor_check_roles},
    {"database.zones", NEED_CONFIG | NEED_SCHEMA, doctor_check_zones},
    {"database.partitions", NEED_CONFIG | NEED_SCHEMA, doctor_check_partitions},
    {"database.locks", NEED_CONFIG | NEED_SCHEMA, doctor_check_locks},
    {"database.transactions", NEED_CONFIG | NEED_DATABASE, doctor_check_transactions},
    {"clock.database", NEED_CONFIG | NEED_DATABASE, doctor_check_clock},
    {"messages", NEED_CONFIG | NEED_SCHEMA, doctor_check_messages},
    {"messages.retrying", NEED_CONFIG | NEED_SCHEMA, doctor_check_retrying},
    {"broker.connection", NEED_CONFIG, doctor_check_broker},
    {"broker.owner", NEED_CONFIG | NEED_SCHEMA | NEED_BROKER, doctor_check_owner},
    {"broker.permissions", NEED_CONFIG | NEED_BROKER, doctor_check_permissions},
    {"broker.topology", NEED_CONFIG | NEED_BROKER, doctor_check_topology},
    {"broker.queues", NEED_CONFIG | NEED_BROKER, doctor_check_queues},
    {"broker.shards", NEED_CONFIG | NEED_SCHEMA | NEED_BROKER, doctor_check_shards},
    {"broker.delays", NEED_CONFIG | NEED_BROKER, doctor_check_delays},
    {"broker.publish", NEED_CONFIG | NEED_BROKER, doctor_check_echo},
    {"handover.transport", NEED_CONFIG | NEED_BROKER, doctor_check_transport},
    {"handover.policies", NEED_CONFIG | NEED_BROKER, doctor_check_policies},
    {"handover.messages", NEED_CONFIG | NEED_SCHEMA | NEED_BROKER, doctor_check_handed},
    {"handover.last_hop", NEED_CONFIG | NEED_SCHEMA | NEED_BROKER, doctor_check_last_hop},
    {"cells", NEED_CONFIG, doctor_check_cells},
    {"rabbitmqctl", NEED_CONFIG | NEED_BROKER, doctor_check_rabbitmqctl},
};

/* Why this check cannot be done, or NULL. */
static const char *find_obstacle(const struct doctor *d, unsigned needs)
{
    if ((needs & NEED_CONFIG) && d->config == NULL)
        return "the configuration was not read, or has mistakes";
    if ((needs & (NEED_DATABASE | NEED_SCHEMA)) && d->pg == NULL)
        return d->pg_why;
    if ((needs & NEED_SCHEMA) && !d->schema_current)
        return "the schema is not the one that this program needs";
    if ((needs & NEED_BROKER) && d->broker == NULL)
        return d->broker_why;
    return NULL;
}

/* A connection that broke in a check serves no other. */
static void look_after(struct doctor *d)
{
    struct err e;
    if (d->pg != NULL && pg_is_broken(d->pg)) {
        pg_close(d->pg);
        d->pg = NULL;
        snprintf(d->pg_why, sizeof d->pg_why, "the connection to Postgres was lost");
    }
    if (d->broker != NULL && broker_reopen(d->broker, &e) != 0) {
        /* Nor is one that does not answer for one thing silent about all others. */
        const struct broker_options o = doctor_broker_options(d);
        broker_drop(d->broker);
        d->broker = broker_open(&o, &e);
        snprintf(d->broker_why, sizeof d->broker_why, "the connection to RabbitMQ was lost");
    }
}

static void run_checks(struct doctor *d)
{
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        const char *obstacle = find_obstacle(d, checks[i].needs);
        if (obstacle != NULL)
            doctor_report(d, FINDING_SKIP, checks[i].name, "%s", obstacle);
        else
            checks[i].run(d);
        look_after(d);
    }
}

static int run_doctor(struct cli *cli, void *order)
{
    struct doctor *d = order;
    d->cli = cli;
    d->array = d->json ? json_array() : NULL;
    run_checks(d);
    pg_close(d->pg);
    broker_close(d->broker);
    int code = d->failed > 0 ? 1 : 0;
    if (d->array != NULL && cli_print_json(d->array, JSON_INDENT(2)) != 0)
        code = 1;
    json_decref(d->array);
    return code;
}

static const struct cli_option options[] = {
    {"rabbitmqctl", "PATH",
     "also ask the broker's administration (default: $RABBITMQCTL, or" CLI_HELP_LINE
     "rabbitmqctl in PATH, if this user may run it)",
     CLI_TAKE(text, doctor, rabbitmqctl)},
    {"management", "URL",
     "the management API, asked where rabbitmqctl cannot run (default:" CLI_HELP_LINE
     "port 15672 of the host in amqp.url, whose user it is asked as)",
     CLI_TAKE(text, doctor, management)},
    {"json", NULL, "as an array of {check, status, detail, remedy}", CLI_TAKE(flag, doctor, json)},
    {0},
};

const struct command command_doctor = {
    .name = "doctor",
    .synopsis = "[--rabbitmqctl PATH | --management URL] [--json]",
    .summary = "Check configuration, database, broker, permissions, clocks; say what to do",
    .notes = "Changes nothing that stays. Exit 0: nothing failed (there may be warnings); 1: something did.",
    .options = options,
    .run = run_doctor,
    .order_size = sizeof(struct doctor),
    .initial = &(const struct doctor){.has_plugin = -1},
};
