/* postdate import: what waits in a delayed-message plugin is taken over, with proof. */
#include "amqp/inspect/inspect.h"
#include "core/base/random.h"
#include "core/message/reserved.h"
#include "gateway/cli/command.h"
#include "gateway/cli/import/import_internal.h"
#include "sql/admin/settings.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define BROKER_MS 10000
#define MARGIN_MS 60000

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    import_interrupted = 1;
}

/* "orders=orders.due" */
static int take_exchange(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    struct import_order *order = at;
    const char *sign = strchr(text, '=');
    if (sign == NULL || sign == text)
        return cli_usage(cli, "--%s: \"%s\" is not OLD=NEW, as orders=orders.due", o->name, text);
    if (order->mapping_count == IMPORT_EXCHANGES_MAX)
        return cli_usage(cli, "--%s is given more than %d times", o->name, IMPORT_EXCHANGES_MAX);
    const struct import_mapping m = {bytes_of(text, (size_t)(sign - text)), bytes_of_str(sign + 1)};
    if (import_mapping_of(order, m.from) != NULL)
        return cli_usage(cli, "--%s: \"%.*s\" is given twice", o->name, (int)m.from.len, text);
    if (m.to.len > MESSAGE_NAME_MAX || !bytes_is_text(m.to))
        return cli_usage(cli, "--%s: \"%s\" is no name of an exchange (at most 255 bytes of UTF-8)", o->name,
                         sign + 1);
    order->mappings[order->mapping_count++] = m;
    return 0;
}

static int take_node(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    struct import_order *order = at;
    if (order->node_count == IMPORT_NODES_MAX || text[0] == '\0' || strlen(text) >= IMPORT_NODE_SIZE)
        return cli_usage(cli, "--%s: \"%s\" is no node, or there are more than %d", o->name, text,
                         IMPORT_NODES_MAX);
    order->nodes[order->node_count++] = text;
    return 0;
}

/* Each must be one to which Postdate may deliver, and be there. */
static int check_targets(struct import_run *run, struct err *e)
{
    const struct import_order *o = run->order;
    struct broker *b =
        o->mapping_count > 0 ? cli_broker_open(&run->cli->config, "postdate import", BROKER_MS, e) : NULL;
    char name[MESSAGE_NAME_MAX + 1];
    bool exists = true;
    int rc = b != NULL || o->mapping_count == 0 ? 0 : -1;
    for (size_t i = 0; rc == 0 && i < o->mapping_count; i++) {
        const struct bytes to = o->mappings[i].to;
        snprintf(name, sizeof name, "%.*s", (int)to.len, (const char *)to.data);
        if (!bytes_equal_str(to, run->rules.delivery_exchange) && !accept_exchange_allowed(&run->rules, to))
            rc = err_set(e, ERR_CONFIG, "exchange \"%s\" is not among those that delivery.allow lists", name);
        else if (reserved_exchange(to, &run->rules))
            rc = err_set(e, ERR_CONFIG, "exchange \"%s\" is one of Postdate's own", name);
        else if (to.len > 0 && (rc = inspect_exchange(b, name, &exists, e)) == 0 && !exists)
            rc = err_set(e, ERR_NOT_FOUND,
                         "exchange \"%s\" does not exist: declare it, and bind the queues to it", name);
    }
    broker_close(b);
    return rc;
}

static void make_run(struct import_run *run)
{
    uint8_t bytes[(IMPORT_RUN_SIZE - 1) / 2];
    random_fill(bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(run->run + 2 * i, 3, "%02x", bytes[i]);
}

static int prepare(struct import_run *run, struct err *e)
{
    const struct import_order *o = run->order;
    const struct hold_request no_wish = {.is_named = true};
    run->rules = config_accept_rules(&run->cli->config);
    if (settings_hold_policy(run->cli->pg, &run->rules.hold, e) != 0 ||
        import_owner(run->cli->pg, run->owner, e) != 0)
        return -1;
    run->hold = hold_policy_decide(run->rules.hold, &no_wish);
    if (o->vhost != NULL)
        snprintf(run->vhost, sizeof run->vhost, "%s", o->vhost);
    else if (broker_url_vhost(run->cli->config.amqp.url, run->vhost, sizeof run->vhost, e) != 0)
        return -1;
    return check_targets(run, e);
}

/* 0, 1: some were refused, or the code of an error. */
static int import_one(struct import_run *run, FILE *proof)
{
    struct err e;
    make_run(run);
    int rc = import_node(run, proof, &e);
    int64_t refused = 0;
    for (size_t i = 0; i < run->count_count; i++)
        refused += run->counts[i].refused;
    import_count_print_reasons(run);
    if (rc == 0)
        import_count_print(run);
    int code = rc != 0 ? cli_fail(&e) : refused > 0;
    return code;
}

static int import_nodes(struct cli *cli, const struct import_order *o, struct import_run *run, FILE *proof)
{
    struct err e;
    const struct import_run empty = {.cli = cli, .order = o};
    int worst = 0;
    for (size_t i = 0; i < (o->node_count > 0 ? o->node_count : 1) && !import_interrupted; i++) {
        *run = empty;
        run->node_asked = o->node_count > 0 ? o->nodes[i] : NULL;
        int code = prepare(run, &e) != 0 ? cli_fail(&e) : import_one(run, proof);
        worst = code > worst ? code : worst;
        if (run->proof_failed) /* the next run cuts that part off, if there is none behind it */
            break;
    }
    return worst;
}

static int run_plugin(struct cli *cli, void *order)
{
    const struct import_order *o = order;
    struct sigaction action = {.sa_handler = on_interrupt};
    struct import_run *run = calloc(1, sizeof *run);
    if (run == NULL)
        return cli_no_memory();
    struct err e;
    FILE *proof = o->proof != NULL ? import_proof_open(o->proof, &e) : NULL;
    int code = o->proof != NULL && proof == NULL ? cli_fail(&e) : 0;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (code == 0)
        code = import_nodes(cli, o, run, proof);
    if (proof != NULL && fclose(proof) != 0 && code == 0)
        code = 1;
    free(run);
    return code;
}

static int run_verify(struct cli *cli, void *order)
{
    (void)order;
    return import_proof_verify(cli, cli->words[0]);
}

static const struct cli_option options[] = {
    {"exchange", "OLD=NEW",
     "deliver what waits in the plugin's exchange OLD to NEW; for each" CLI_HELP_LINE
     "exchange of the plugin",
     take_exchange, .of = "plugin"},
    {"dry-run", NULL,
     "change nothing: count by exchange and hour, and say what can't be" CLI_HELP_LINE "imported and why",
     CLI_TAKE(flag, import_order, dry_run), .of = "plugin"},
    {"proof", "FILE", "append a line of JSON for each message that is stored, and counts",
     CLI_TAKE(text, import_order, proof), .of = "plugin", .words = CLI_FILE},
    {"node", "NODE", "of RabbitMQ; may be repeated (default: the one that rabbitmqctl reaches)", take_node,
     .of = "plugin"},
    {"vhost", "V", "the plugin's vhost (default: that of amqp.url)", CLI_TAKE(text, import_order, vhost),
     .of = "plugin"},
    {"margin", "D", "what is due within this time stays with the plugin (default: 60s)",
     CLI_TAKE(duration, import_order, margin_ms), .of = "plugin"},
    {"rate", "N", "at most so many a second", CLI_TAKE(number, import_order, rate), .max = 1000000,
     .of = "plugin"},
    {"batch", "N", "so many in one transaction (default: 4000)", CLI_TAKE(number, import_order, batch),
     .max = IMPORT_BATCH_MAX, .of = "plugin"},
    {"rabbitmqctl", "PATH", "default: $RABBITMQCTL, or rabbitmqctl in PATH",
     CLI_TAKE(text, import_order, rabbitmqctl), .of = "plugin", .words = CLI_FILE},
    {0},
};

static const struct cli_verb verbs[] = {
    {"plugin", .run = run_plugin},
    {"verify", .run = run_verify, 1, 1, "give the FILE that --proof wrote", .takes_file = true},
    {0},
};

const struct command command_import = {
    .name = "import",
    .synopsis = "plugin --exchange OLD=NEW... [OPTIONS] | verify FILE",
    .summary = "Take over what waits in RabbitMQ's delayed-message plugin, with proof",
    .notes =
        "Run it where rabbitmqctl runs. It can be interrupted and run again at any time: nothing is lost or\n"
        "delivered twice. Exit 1: some messages were refused, and stay with the plugin.",
    .options = options,
    .verbs = verbs,
    .opens = true,
    .choices = "write plugin or verify",
    .order_size = sizeof(struct import_order),
    .initial = &(const struct import_order){.margin_ms = MARGIN_MS, .batch = IMPORT_BATCH_MAX},
};
