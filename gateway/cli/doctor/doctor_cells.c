/* Several cells: the number of this one, what feeds it, and the list of all. Silent where there is one. */
#include "amqp/topology/topology_cell.h"
#include "gateway/cli/doctor/doctor.h"
#include "sql/admin/settings.h"

#include <string.h>

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
                    "exchange '%s' is not there yet" REMEDY
                    "start a gateway: it declares it, if its plugin is enabled on each node "
                    "(rabbitmq-plugins enable " TOPOLOGY_CELL_PLUGIN ")",
                    cell.exchange);
    } else if (topology_cell_declare(d->broker, &cell, &e) != 0) {
        doctor_fail(d, "cell.exchange",
                    "%s" REMEDY "give all cells the same cell.exchange_by, or this one another cell.exchange",
                    e.text);
    } else if (c->cell.weight == 0) {
        doctor_warn(d, "cell.exchange",
                    "cell.weight is 0: nothing new comes by '%s'" REMEDY
                    "set cell.weight, and restart a gateway, if this cell is to take messages again",
                    cell.exchange);
    } else {
        doctor_ok(d, "cell.exchange", "'%s' deals out by %s; what has none goes to one cell, all of it",
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
                    "correct its postgres.url, or start it: what it has is not found meanwhile",
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

static void report_mistake(void *ctx, enum err_kind kind, const char *text)
{
    (void)kind;
    doctor_fail(ctx, "cells", "%s" REMEDY "correct the file that cells.file names: docs/scale.md", text);
}

static void report_exposed(void *ctx, const char *text)
{
    doctor_warn(ctx, "cells", "%s" REMEDY "sudo chown root:postdate FILE; sudo chmod 640 FILE", text);
}

static void check_list(struct doctor *d)
{
    const struct config_report report = {.mistake = report_mistake, .warning = report_exposed, .ctx = d};
    struct cells cells;
    struct err e;
    if (cells_load(&cells, d->config->cells.file, &report, &e) != 0)
        return;
    for (size_t i = 0; i < cells.count; i++)
        check_member(d, &cells.list[i]);
    cells_free(&cells);
}

void doctor_check_cells(struct doctor *d)
{
    if (d->pg != NULL && d->schema_current)
        check_number(d);
    if (d->broker != NULL && d->config->cell.exchange != NULL)
        check_feed(d);
    if (d->config->cells.file != NULL)
        check_list(d);
}
