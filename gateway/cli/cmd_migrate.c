#include "amqp/broker.h"
#include "gateway/cli/cli.h"
#include "sql/migrate.h"
#include <stdio.h>
#include <string.h>

#define BROKER_WAIT_MS 2000

struct identity {
    char broker[128], vhost[256];
};

/* Who the broker is, if it answers soon; the schema can be made without it. 0, or an exit code with the error
 * printed. */
static int ask_broker(const struct config *config, bool quiet, struct identity *out)
{
    struct err e;
    memset(out, 0, sizeof *out);
    if (broker_url_vhost(config->amqp.url, out->vhost, sizeof out->vhost, &e) != 0)
        return cli_fail(&e);
    const struct broker_options options = {
        .url = config->amqp.url,
        .name = "postdate migrate",
        .connect_timeout_ms = BROKER_WAIT_MS,
        .ca_file = config->amqp.ca_file,
        .cert_file = config->amqp.cert_file,
        .key_file = config->amqp.key_file,
    };
    struct broker *broker = broker_open(&options, &e);
    if (broker != NULL) {
        snprintf(out->broker, sizeof out->broker, "%s", broker_cluster_name(broker));
        broker_close(broker);
        return 0;
    }
    out->vhost[0] = '\0';
    if (!quiet)
        fprintf(stderr, "postdate: not checked which broker the schema belongs to: %s\n", e.text);
    return 0;
}

/* Everything else works without them. */
static void print_missing_roles(const char *names)
{
    fputs("postdate: this login may not create the roles for SQL users. An administrator can run\n", stderr);
    for (const char *at = names; *at != '\0';) {
        size_t len = strcspn(at, ",");
        fprintf(stderr, "    CREATE ROLE %.*s NOLOGIN;\n", (int)len, at);
        at += len + (at[len] == ',');
    }
    fputs("and then `postdate migrate` again, which grants them what they need.\n", stderr);
}

static int migrate(struct cli *cli, bool rebind, bool quiet)
{
    struct migrate_report report = {0};
    struct identity identity;
    struct err e;
    int code = cli_open(cli, CLI_SCHEMA_ANY);
    if (code == 0)
        code = ask_broker(&cli->config, quiet, &identity);
    if (code != 0)
        return code;
    if (rebind && identity.broker[0] == '\0') {
        err_set(&e, ERR_AWAY, "--rebind records the broker's name, and the broker does not answer");
        return cli_fail(&e);
    }
    const struct accept_rules rules = config_accept_rules(&cli->config);
    const struct settings settings = {.rules = &rules,
                                      .key_memory_ms = cli->config.keys.key_memory_ms,
                                      .lead_ms = cli->config.delivery.lead_ms};
    const struct migrate_options options = {
        .settings = &settings,
        .max_delay_ms = cli->config.delivery.max_delay_ms,
        .vhost = identity.vhost,
        .broker = identity.broker,
        .rebind = rebind,
    };
    if (migrate_run(cli->pg, &options, &report, &e) != 0)
        return cli_fail(&e);
    if (report.missing_roles[0] != '\0')
        print_missing_roles(report.missing_roles);
    if (quiet)
        return 0;
    printf("schema postdate is at version %d (", report.to_version);
    if (report.from_version == 0)
        fputs("created", stdout);
    else if (report.from_version == report.to_version)
        fputs("unchanged", stdout);
    else
        printf("upgraded from version %d", report.from_version);
    printf("; %d partition%s made", report.partitions_made, report.partitions_made == 1 ? "" : "s");
    if (report.partitions_missing > 0)
        printf(", %d left to the gateway that is at it", report.partitions_missing);
    puts(")");
    return 0;
}

static int run(struct cli *cli, int argc, char **argv)
{
    static const struct option options[] = {
        {"rebind", no_argument, NULL, 'R'}, {"quiet", no_argument, NULL, 'q'}, CLI_LONG};
    bool rebind = false, quiet = false;
    int option;
    while ((option = getopt_long(argc, argv, CLI_SHORT "q", options, NULL)) != -1) {
        int code;
        if (option == 'R')
            rebind = true;
        else if (option == 'q')
            quiet = true;
        else if ((code = cli_common_option(cli, option, argv)) >= 0)
            return code;
    }
    if (optind < argc)
        return cli_usage(cli, "unexpected argument \"%s\"", argv[optind]);
    return migrate(cli, rebind, quiet);
}

const struct command command_migrate = {
    .name = "migrate",
    .synopsis = "[--rebind] [-q]",
    .summary = "Create or upgrade the schema in Postgres",
    .help = "      --rebind        the schema now belongs to the broker and vhost of amqp.url\n"
            "  -q, --quiet         say nothing when all is well\n",
    .run = run,
};
