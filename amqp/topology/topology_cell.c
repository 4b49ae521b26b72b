#include "amqp/topology/topology_cell.h"

#include <stdio.h>
#include <string.h>

#define TYPE "x-consistent-hash"

static int tell_refusal(struct broker *b, const struct broker_exchange *x, const char *by, struct err *e)
{
    if (broker_lacks_type(b, x, TOPOLOGY_CELL_PLUGIN, e))
        return err_wrap(e, "cell.exchange '%.100s'", x->name);
    return err_wrap(e, "cell.exchange, with cell.exchange_by = %s (the same for all cells)", by);
}

/* Of an exchange that is there RabbitMQ compares no argument but the alternate exchange, and cells that hash
 * by different things would make two of one key. So its name says by what: there need be none of that name.
 */
int topology_cell_declare(struct broker *b, const struct topology_cell *c, struct err *e)
{
    static const struct {
        const char *word, *name, *value;
    } by[] = {[TOPOLOGY_CELL_BY_KEY] = {"key", "hash-header", "x-postdate-key"},
              [TOPOLOGY_CELL_BY_MESSAGE_ID] = {"message-id", "hash-property", "message_id"},
              [TOPOLOGY_CELL_BY_ROUTING_KEY] = {"routing-key", NULL, NULL}};
    char mark[300];
    const struct broker_exchange x = {.name = c->exchange,
                                      .type = TYPE,
                                      .args = BROKER_ARGS(BROKER_TEXT("alternate-exchange", mark),
                                                          BROKER_TEXT(by[c->by].name, by[c->by].value))};
    snprintf(mark, sizeof mark, "%.200s.by.%s", c->exchange, by[c->by].word);
    if (broker_declare_exchange_as(b, &x, e) == 0)
        return 0;
    return e->kind == ERR_CONFIG ? tell_refusal(b, &x, by[c->by].word, e) : -1;
}

static int unbind(struct broker *b, const struct topology_cell *c, int weight, struct err *e)
{
    char key[16];
    snprintf(key, sizeof key, "%d", weight);
    return broker_unbind_exchange(
        b, &(struct broker_binding){.to = c->intake_exchange, .from = c->exchange, .key = key}, e);
}

/* The wanted one, too: a binding that is stored while its weight does not count would not begin to. */
static int unbind_others(struct broker *b, const struct topology_cell *c, int before, struct err *e)
{
    bool unknown = before == TOPOLOGY_CELL_UNKNOWN;
    if (before > 0 && unbind(b, c, before, e))
        return -1;
    for (int w = 1; unknown && w <= TOPOLOGY_CELL_WEIGHT_MAX; w++)
        if (w != c->weight && unbind(b, c, w, e))
            return -1;
    return c->weight > 0 ? unbind(b, c, c->weight, e) : 0;
}

int topology_cell_bind(struct broker *b, const struct topology_cell *c, int before, struct err *e)
{
    char key[16];
    const struct broker_binding x = {.to = c->intake_exchange, .from = c->exchange, .key = key};
    snprintf(key, sizeof key, "%d", c->weight);
    if (topology_cell_declare(b, c, e) || (before != c->weight && unbind_others(b, c, before, e)))
        return -1;
    return c->weight > 0 ? broker_bind_exchange(b, &x, e) : 0;
}
