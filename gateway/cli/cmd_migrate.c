#include "amqp/inspect/inspect.h"
#include "amqp/topology/owner.h"
#include "core/base/names.h"
#include "gateway/cli/command.h"
#include "sql/admin/migrate.h"
#include <stdio.h>
#include <string.h>

#define BROKER_WAIT_MS 2000

struct order {
    bool rebind, quiet;
};

struct identity {
    char broker[128], vhost[256];
};

/* A copy has the original's identity until it gets its own: until then, objects of the original seem to be
 * its own. */
static int refuse_busy_vhost(struct broker *b, struct cli *cli, struct err *e)
{
    struct owner owner;
    struct inspect_queue q;
    struct err copy = {0};
    char identity[MIGRATE_IDENTITY_SIZE];
    const char *intake = cli->config.intake.queue;
    if (migrate_identity(cli->pg, identity, e) != 0 || owner_look(b, identity, &owner, e) != 0)
        return -1;
    bool original = owner.verdict == OWNER_OURS && migrate_check_copy(cli->pg, &copy) != 0;
    if (owner.verdict != OWNER_OTHER && !original)
        return 0;
    if (inspect_queue(b, intake, &q, e) != 0)
        return -1;
    const char *whose = original ? identity : owner.other[0] != '\0' ? owner.other : "unknown";
    return q.consumers == 0 ? 0
                            : err_set(e, ERR_BUSY,
                                      "prefix '%s' in the vhost belongs to another database (%s), whose "
                                      "gateways read '%.200s': stop them first",
                                      broker_names.prefix, whose, intake);
}

/* Nodes of one cluster may give themselves different names: where the vhost remembers this database, its word
 * counts. */
static bool vhost_is_ours(struct broker *b, struct cli *cli)
{
    struct err e;
    struct owner owner;
    char identity[MIGRATE_IDENTITY_SIZE];
    return migrate_identity(cli->pg, identity, &e) == 0 && identity[0] != '\0' &&
           owner_look(b, identity, &owner, &e) == 0 && owner.verdict == OWNER_OURS;
}

/* Reads the broker's name, if it answers soon; without --rebind, the schema can be created without it. 0, or
 * an exit code with the error printed. */
static int ask_broker(struct cli *cli, const struct order *o, struct identity *id)
{
    struct err e;
    int rc = 0;
    memset(id, 0, sizeof *id);
    if (broker_url_vhost(cli->config.amqp.url, id->vhost, sizeof id->vhost, &e) != 0)
        return cli_fail(cli, &e);
    struct broker *b = cli_broker_open(&cli->config, "postdate migrate", BROKER_WAIT_MS, &e);
    if (b == NULL) {
        id->vhost[0] = '\0';
        if (!o->quiet)
            cli_say("%s; the first gateway will record which broker this is", e.text);
    } else if (o->rebind || !vhost_is_ours(b, cli)) {
        snprintf(id->broker, sizeof id->broker, "%s", broker_cluster_name(b));
    }
    if (o->rebind && id->broker[0] == '\0')
        rc = err_set(&e, ERR_AWAY,
                     "--rebind records the name of the RabbitMQ cluster, and RabbitMQ does not answer");
    else if (o->rebind)
        rc = refuse_busy_vhost(b, cli, &e);
    broker_close(b);
    return rc == 0 ? 0 : cli_fail(cli, &e);
}

/* The vhost is this database's from now on. */
static int take_vhost(struct broker *b, const char *identity, struct err *e)
{
    struct owner owner;
    if (owner_take_over(b, identity, &owner, e) != 0)
        return -1;
    if (owner.verdict == OWNER_OTHER)
        return err_set(e, ERR_BUSY, "the vhost was given to another database at the same time");
    if (owner.verdict == OWNER_UNKNOWN)
        cli_warn("cannot record the database in the vhost: %s", owner.why);
    return 0;
}

/* With --rebind, claims the vhost for this database; else only if it has no owner, so that a gateway that
 * starts on another node recognises the broker that was recorded now. If the vhost belongs to another
 * database, gateways report it. 0, or an exit code with the error printed. */
static int settle_vhost(struct cli *cli, bool rebind)
{
    struct err e;
    struct owner owner;
    char identity[MIGRATE_IDENTITY_SIZE];
    struct broker *b = cli_broker_open(&cli->config, "postdate migrate", BROKER_WAIT_MS, &e);
    int rc = b != NULL ? migrate_identity(cli->pg, identity, &e) : -1;
    if (rc == 0)
        rc = rebind ? take_vhost(b, identity, &e) : owner_claim(b, identity, &owner, &e);
    broker_close(b);
    return rc == 0 || !rebind ? 0 : cli_fail(cli, &e);
}

/* Everything else works without them, so it is printed once. */
static void print_missing_roles(const char *names)
{
    fputs("postdate: the roles for SQL users are missing, and this login may not create them. If you want "
          "such users, an administrator can run\n",
          stderr);
    for (const char *at = names; *at != '\0';) {
        size_t len = strcspn(at, ",");
        fprintf(stderr, "    CREATE ROLE %.*s NOLOGIN;\n", (int)len, at);
        at += len + (at[len] == ',');
    }
    fputs("and then `postdate migrate` again, which grants them what they need.\n", stderr);
}

static int migrate_schema(struct cli *cli, bool rebind, const struct identity *identity,
                          struct migrate_report *report, struct err *e)
{
    const struct accept_rules rules = config_accept_rules(&cli->config);
    const struct settings settings = {.rules = &rules,
                                      .key_memory_ms = cli->config.keys.key_memory_ms,
                                      .lead_ms = cli->config.delivery.lead_ms};
    const struct migrate_options options = {
        .settings = &settings,
        .cell = (int)cli->config.cell.number,
        .max_delay_ms = cli->config.delivery.max_delay_ms,
        .vhost = identity->vhost,
        .broker = identity->broker,
        .rebind = rebind,
    };
    return migrate_run(cli->pg, &options, report, e);
}

static void say_blocked(const char *who)
{
    cli_warn("waiting for a lock, for at most 120 s: it is held by %s", who);
}

static void print_done(const struct migrate_report *r, const char *vhost)
{
    if (r->missing_roles[0] != '\0' && r->from_version != r->to_version)
        print_missing_roles(r->missing_roles);
    if (r->new_identity[0] != '\0')
        printf("this database is no copy of %s any more: its identity is %s (before: %s). Vhost '%s' belongs "
               "to it, and gateways of the original cannot use that vhost\n",
               r->origin, r->new_identity, r->old_identity, vhost);
    printf("schema postdate is at version %d (", r->to_version);
    if (r->from_version == 0)
        fputs("created", stdout);
    else if (r->from_version == r->to_version)
        fputs("unchanged", stdout);
    else
        printf("upgraded from version %d", r->from_version);
    printf("; %d partition%s created", r->partitions_made, r->partitions_made == 1 ? "" : "s");
    if (r->partitions_missing > 0 && r->partitions_error.kind == ERR_NONE)
        printf(", %d left to the gateway that is creating them", r->partitions_missing);
    puts(")");
}

/* The first start after an installation says what to do, in the journal. */
static int open_database(struct cli *cli)
{
    int code = cli_open(cli, CLI_SCHEMA_ANY);
    if (code != 0 && cli->has_config && config_names_no_server(&cli->config))
        cli_warn("no server is configured: set postgres.url and amqp.url in %s. docs/install.md lists what "
                 "must be created first (in the package: /usr/share/doc/postdate/install.md.gz)",
                 cli->config.source != NULL ? cli->config.source : "/etc/postdate/postdate.conf");
    return code;
}

static int migrate_database(struct cli *cli, void *order)
{
    const struct order *o = order;
    struct migrate_report report = {0};
    struct identity identity;
    struct err e;
    int code = open_database(cli);
    if (code == 0)
        code = ask_broker(cli, o, &identity);
    if (code != 0)
        return code;
    pg_tell_blocked(cli->pg, say_blocked);
    if (migrate_schema(cli, o->rebind, &identity, &report, &e) != 0)
        return cli_fail(cli, &e);
    if (identity.vhost[0] != '\0' && (code = settle_vhost(cli, o->rebind)) != 0)
        return code;
    if (report.partitions_error.kind != ERR_NONE)
        cli_warn("%d partitions far ahead are missing and cannot be created: %s; messages due then are "
                 "rejected until they exist",
                 report.partitions_missing, report.partitions_error.text);
    if (!o->quiet)
        print_done(&report, identity.vhost);
    return 0;
}

static const struct cli_option options[] = {
    {"rebind", NULL,
     "bind the schema to the broker and vhost of amqp.url, and" CLI_HELP_LINE
     "that vhost to the schema; a copy, such as a restored dump," CLI_HELP_LINE
     "becomes an independent database",
     CLI_TAKE(flag, order, rebind)},
    {"quiet", NULL, "print nothing unless something is wrong", CLI_TAKE(flag, order, quiet), .letter = 'q'},
    {0},
};

const struct command command_migrate = {
    .name = "migrate",
    .synopsis = "[--rebind] [-q]",
    .summary = "Create or upgrade the schema in PostgreSQL",
    .options = options,
    .run = migrate_database,
    .order_size = sizeof(struct order),
};
