/* Looks at everything that a gateway depends on, and says for each thing that is wrong what to do. */
#include "amqp/topology/topology.h"
#include "core/base/names.h"
#include "gateway/cli/command.h"
#include "gateway/cli/doctor/doctor.h"
#include "sql/admin/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Several cells: the number of this one, what feeds it, and the list of all. Silent where there is one.
 */

#define CELL_ANSWER_MS 3000

static void check_number(struct doctor *d)
{
    struct err e;
    int number, wanted = (int)d->config->cell.number;
    if (settings_take_cell(d->pg, -1, &number, &e) != 0)
        doctor_error(d, "cell.number", &e);
    else if (wanted >= 0 && number >= 0 && wanted != number) {
        doctor_fail(d, "cell.number",
                    "cell.number is %d, but this database is cell %d" REMEDY
                    "set cell.number = %d, or leave it out: no gateway starts with another one",
                    wanted, number, number);
    } else if (number >= 0)
        doctor_ok(d, "cell.number", "this database is cell %d", number);
    else if (wanted >= 0)
        doctor_ok(d, "cell.number", "the first gateway that starts makes it cell %d", wanted);
}

/* Declaring what is there again changes nothing. */
static void check_feed(struct doctor *d)
{
    static const char *const by[] = {"the header x-postdate-key", "message-id", "the routing key"};
    const struct config *c = d->config;
    const struct topology_cell cell = {.exchange = c->cell.exchange,
                                       .by = (enum topology_cell_by)c->cell.exchange_by,
                                       .intake_exchange = c->intake.exchange};
    struct err e;
    bool exists;
    if (inspect_exchange(d->broker, cell.exchange, &exists, &e) != 0) {
        doctor_error(d, "cell.exchange", &e);
    } else if (!exists) {
        doctor_warn(d, "cell.exchange",
                    "exchange '%s' does not exist yet" REMEDY
                    "start a gateway: it declares it, if its plugin is enabled on each node "
                    "(rabbitmq-plugins enable " TOPOLOGY_CELL_PLUGIN ")",
                    cell.exchange);
    } else if (topology_cell_declare(d->broker, &cell, &e) != 0) {
        doctor_fail(d, "cell.exchange",
                    "%s" REMEDY
                    "set the same cell.exchange_by in all cells, or a different cell.exchange in this one",
                    e.text);
    } else if (c->cell.weight == 0) {
        doctor_warn(d, "cell.exchange",
                    "cell.weight is 0: exchange '%s' routes no new messages to this cell" REMEDY
                    "set cell.weight, and restart a gateway, if this cell is to accept messages again",
                    cell.exchange);
    } else {
        doctor_ok(d, "cell.exchange",
                  "exchange '%s' distributes by %s; messages without one all go to the same cell",
                  cell.exchange, by[cell.by]);
    }
}

static void check_member(struct doctor *d, const struct cell *cell)
{
    struct err e;
    int number = -1;
    struct pg *pg = pg_open_other(cell->postgres_url, "postdate doctor", CELL_ANSWER_MS, &e);
    if (pg == NULL || settings_take_cell(pg, -1, &number, &e) != 0) {
        doctor_warn(d, "cells",
                    "cell %s: %s" REMEDY
                    "correct its postgres.url, or start it: its messages are not found until then",
                    cell->name, e.text);
    } else if (cell->number >= 0 && cell->number != number) {
        doctor_fail(d, "cells",
                    "cell %s has the number %d in the list, but its database has %s" REMEDY
                    "write the number of its cell.number there, or leave it out",
                    cell->name, cell->number, number < 0 ? "none" : "another one");
    } else {
        doctor_ok(d, "cells", "cell %s answers", cell->name);
    }
    pg_close(pg);
}

static void report_mistake_cells(void *ctx, enum err_kind kind, const char *text)
{
    (void)kind;
    doctor_fail(ctx, "cells", "%s" REMEDY "correct the file that cells.file names: docs/scale.md", text);
}

static void report_exposed_cells(void *ctx, const char *text)
{
    doctor_warn(ctx, "cells", "%s" REMEDY "sudo chown root:postdate FILE; sudo chmod 640 FILE", text);
}

static void check_list(struct doctor *d)
{
    const struct config_report report = {
        .mistake = report_mistake_cells, .warning = report_exposed_cells, .ctx = d};
    struct cells cells;
    struct err e;
    if (cells_load(&cells, d->config->cells.file, &report, &e) != 0)
        return;
    for (size_t i = 0; i < cells.count; i++)
        check_member(d, &cells.list[i]);
    cells_free(&cells);
}

static void doctor_check_cells(struct doctor *d)
{
    if (d->pg != NULL && d->schema_current)
        check_number(d);
    if (d->broker != NULL && d->config->cell.exchange != NULL)
        check_feed(d);
    if (d->config->cells.file != NULL)
        check_list(d);
}

/* --- Looks at everything that a gateway depends on, and says for each thing that is wrong what to do. */

static void report_mistake(void *ctx, enum err_kind kind, const char *text)
{
    struct doctor *d = ctx;
    doctor_fail(d, "config", "%s" REMEDY "%s", text,
                kind == ERR_PERMISSION ? "sudo postdate doctor"
                                       : "correct it; `postdated --print-config-sample` shows every option");
}

static void report_warning(void *ctx, const char *text)
{
    struct doctor *d = ctx;
    doctor_warn(d, "config", "%s" REMEDY "unset them, or correct their names: POSTDATE_<SECTION>_<OPTION>",
                text);
}

static void report_exposed(void *ctx, const char *text)
{
    struct doctor *d = ctx;
    doctor_warn(d, "config", "%s" REMEDY "sudo chown root:postdate FILE; sudo chmod 640 FILE", text);
}

static void check_config(struct doctor *d)
{
    const struct config_report report = {
        .mistake = report_mistake, .warning = report_warning, .exposed = report_exposed, .ctx = d};
    struct cli *cli = d->cli;
    struct err e;
    if (config_load(&cli->config, cli->config_path, &report, &e) != 0)
        return;
    cli->has_config = true;
    names_set_prefix(cli->config.amqp.prefix);
    names_set_intake(cli->config.intake.queue);
    d->config = &cli->config;
    if (d->config->source != NULL)
        doctor_ok(d, "config", "%s, and the environment", d->config->source);
    else
        doctor_ok(d, "config", "no file: defaults and the environment");
}

/* Whoever may publish to the intake exchange reaches what the gateway's login reaches, as far as this list
 * goes. */
static void check_allowed(struct doctor *d)
{
    const struct accept_rules rules = config_accept_rules(d->config);
    bool named = false, pattern = false;
    for (size_t i = 0; i < rules.allow_count; i++) {
        named = named || *rules.allow[i] == '\0';
        pattern = pattern || strspn(rules.allow[i], "*") == strlen(rules.allow[i]);
    }
    if (!named && !pattern)
        return doctor_ok(d, "delivery.allow", "messages may name only what it lists (entries: %zu)",
                         rules.allow_count);
    doctor_warn(d, "delivery.allow",
                "delivery.allow contains %s: clients that may publish to '%s' can reach every queue by its "
                "name, with the gateway's permissions" REMEDY
                "list the exchanges that messages may be delivered to; the default is delivery.exchange and "
                "those of [route]",
                named ? "\"\", the default exchange" : "*, every exchange", rules.intake_exchange);
}

/* All but the first need the configuration. */
enum need { NEED_DATABASE = 1, NEED_SCHEMA = 2, NEED_BROKER = 4 };

static const struct check {
    const char *name; /* of the finding when the check is skipped */
    unsigned needs;
    void (*run)(struct doctor *d); /* NULL: it only asks the database */
    enum health_subject subject;
} checks[] = {
    {"config", 0, .run = check_config},
    {"delivery.allow", 0, .run = check_allowed},
    {"database.connection", 0, .run = doctor_check_database},
    {"database.server", NEED_DATABASE, .subject = HEALTH_FIT},
    {"database.schema", NEED_DATABASE, .run = doctor_check_schema},
    {"database.rights", NEED_SCHEMA, .subject = HEALTH_RIGHTS},
    {"database.roles", NEED_SCHEMA, .subject = HEALTH_ROLES},
    {"database.zones", NEED_SCHEMA, .subject = HEALTH_ZONES},
    {"database.partitions", NEED_SCHEMA, .subject = HEALTH_PARTITIONS},
    {"database.locks", NEED_SCHEMA, .run = doctor_check_locks},
    {"database.transactions", NEED_DATABASE, .subject = HEALTH_OPEN},
    {"database.notify", NEED_DATABASE, .run = doctor_check_notify},
    {"database.space", NEED_DATABASE, .run = doctor_check_space},
    {"clock.database", NEED_DATABASE, .run = doctor_check_clock},
    {"messages", NEED_SCHEMA, .run = doctor_check_messages},
    {"messages.retrying", NEED_SCHEMA, .run = doctor_check_retrying},
    {"broker.connection", 0, .run = doctor_check_broker},
    {"broker.owner", NEED_SCHEMA | NEED_BROKER, .run = doctor_check_owner},
    {"broker.permissions", NEED_BROKER, .run = doctor_check_permissions},
    {"broker.topology", NEED_BROKER, .run = doctor_check_topology},
    {"broker.queues", NEED_BROKER, .run = doctor_check_queues},
    {"broker.shards", NEED_SCHEMA | NEED_BROKER, .run = doctor_check_shards},
    {"broker.delays", NEED_BROKER, .run = doctor_check_delays},
    {"broker.publish", NEED_BROKER, .run = doctor_check_echo},
    {"handover.transport", NEED_BROKER, .run = doctor_check_transport},
    {"handover.policies", NEED_BROKER, .run = doctor_check_policies},
    {"handover.messages", NEED_SCHEMA | NEED_BROKER, .run = doctor_check_handed},
    {"handover.last_hop", NEED_SCHEMA | NEED_BROKER, .run = doctor_check_last_hop},
    {"cells", 0, .run = doctor_check_cells},
    {"rabbitmqctl", NEED_BROKER, .run = doctor_check_rabbitmqctl},
};

/* Why this check cannot be done, or NULL. */
static const char *find_obstacle(const struct doctor *d, const struct check *c)
{
    const unsigned needs = c->needs;
    if (c != &checks[0] && d->config == NULL)
        return "the configuration was not read, or has mistakes";
    if ((needs & (NEED_DATABASE | NEED_SCHEMA)) && d->pg == NULL)
        return d->pg_why;
    if ((needs & NEED_SCHEMA) && !d->schema_current)
        return "the schema has another version than this program needs";
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
        snprintf(d->pg_why, sizeof d->pg_why, "the connection to PostgreSQL was lost");
    }
    if (d->broker != NULL && broker_recover(d->broker, &e) != 0) {
        /* Nor is one that does not answer for one thing silent about all others. */
        const struct broker_options o = doctor_broker_options(d);
        broker_drop(d->broker);
        d->broker = broker_open(&o, &e);
        snprintf(d->broker_why, sizeof d->broker_why, "the connection to RabbitMQ was lost");
    }
}

static int run_doctor(struct cli *cli, void *order)
{
    struct doctor *d = order;
    d->cli = cli;
    d->array = d->json ? json_array() : NULL;
    for (const struct check *c = checks; c < checks + sizeof checks / sizeof checks[0]; c++) {
        const char *obstacle = find_obstacle(d, c);
        if (obstacle != NULL)
            doctor_skip(d, c->name, "%s", obstacle);
        else if (c->run != NULL)
            c->run(d);
        else
            doctor_ask(d, c->name, c->subject);
        look_after(d);
    }
    pg_close(d->pg);
    broker_close(d->broker);
    int code =
        d->array == NULL ? 0 : cli_print_json(cli, json_pack("{s:o}", "checks", d->array), JSON_INDENT(2));
    return code != 0 ? code : d->failed > 0 ? 1 : 0;
}

static const struct cli_option options[] = {
    {"rabbitmqctl", "PATH",
     "also query RabbitMQ with it (default: $RABBITMQCTL, or" CLI_HELP_LINE
     "rabbitmqctl in PATH, if this user may run it)",
     CLI_TAKE(text, doctor, rabbitmqctl), .words = CLI_FILE},
    {"management", "URL",
     "the management API, queried where rabbitmqctl cannot run (default:" CLI_HELP_LINE
     "port 15672 of the host in amqp.url, with the user of amqp.url)",
     CLI_TAKE(text, doctor, management)},
    {"json", NULL, "as {\"checks\": [{check, status, detail, remedy}]}", CLI_TAKE(flag, doctor, json)},
    {0},
};

const struct command command_doctor = {
    .name = "doctor",
    .synopsis = "[--rabbitmqctl PATH | --management URL] [--json]",
    .summary = "Check configuration, PostgreSQL, RabbitMQ, permissions and clocks; print remedies",
    .notes = "Leaves nothing changed. Exit 0: no check failed (there may be warnings); 1: a check failed.",
    .options = options,
    .run = run_doctor,
    .order_size = sizeof(struct doctor),
    .initial = &(const struct doctor){.has_plugin = -1},
};
