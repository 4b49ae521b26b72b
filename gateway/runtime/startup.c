#include "gateway/runtime/startup.h"

#include "amqp/inspect/inspect.h"
#include "amqp/topology/topology.h"
#include "amqp/topology/topology_history.h"
#include "gateway/runtime/daemon.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"
#include "sql/admin/migrate.h"
#include "sql/admin/partition.h"
#include "sql/admin/settings.h"
#include "sql/pipeline/relay.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REFUSED_TRIES 3
#define REFUSED_PAUSE_MS 4000

enum hold_policy startup_hold_policy(const struct runtime *rt)
{
    /* HTTP stores before the transport is chosen; the threads start afterwards. */
    return atomic_load(&rt->up) != 0 ? config_hold_policy(rt->config, rt->transport != NULL)
                                     : config_accept_rules(rt->config).hold;
}

static int record_settings(const struct runtime *rt, struct pg *pg, struct err *e)
{
    const struct config *c = rt->config;
    const struct accept_rules rules = config_accept_rules(c);
    const enum hold_policy hold = config_hold_policy(c, rt->transport != NULL);
    const struct settings s = {.rules = &rules,
                               .key_memory_ms = c->keys.key_memory_ms,
                               .lead_ms = c->delivery.lead_ms,
                               .hold = &hold};
    return settings_record(pg, &s, e);
}

/* Said once, at the start: passwords and messages that others can read or change on their way. */
static void warn_of_open_wires(const struct runtime *rt, enum pg_wire wire)
{
    struct inspect_target t;
    struct err ignored;
    if (wire == PG_WIRE_PLAIN)
        log_warning(
            "postgres.url: messages cross the network unencrypted (sslmode=verify-full, with sslrootcert, "
            "encrypts them and checks who the server is)");
    if (wire == PG_WIRE_UNVERIFIED)
        log_warning(
            "postgres.url: encrypted, but the server's identity is not verified (sslmode=verify-full, with "
            "sslrootcert, does)");
    if (inspect_target(rt->config->amqp.url, &t, &ignored) == 0 && !t.tls && !t.local)
        log_warning("amqp.url: the password and messages cross the network unencrypted (amqps://, with "
                    "amqp.ca_file, encrypts them and checks who the server is)");
}

/* Days that are far ahead can wait: the janitor tries again, and says so until it works. */
static int make_partitions(struct runtime *rt, struct pg *pg, struct err *e)
{
    int missing = 0, made = partitions_ensure(pg, rt->config->delivery.max_delay_ms, &missing, e);
    if (made < 0 && missing == 0)
        return -1;
    if (made < 0)
        log_warning(
            "%d partitions far ahead are missing and cannot be made: %s; messages due then are refused "
            "until they are there",
            missing, e->text);
    else if (missing > 0)
        log_info("%d partitions far ahead are missing; they are made once no other session locks them",
                 missing);
    err_clear(e);
    return 0;
}

/* Each session from now on. Who is too old for the schema ends as SIGTERM would end it, and keeps nothing. */
static int check_schema(void *arg, struct pg *c, struct err *e)
{
    struct runtime *rt = arg;
    int none = 0;
    if (migrate_check(c, "", "", false, e) == 0)
        return 0;
    if (e->kind != ERR_CONFIG)
        return -1;
    if (!runtime_stopping(rt, STOP_INTAKE) &&
        atomic_compare_exchange_strong(&rt->code, &none, err_exit_code(e))) {
        log_error("%s", e->text);
        kill(getpid(), SIGTERM);
    }
    return err_set(e, ERR_STOPPING, "the schema does not fit");
}

/* What RabbitMQ lets go to several of them, only a plugin of it gives. That queue 1 is to be bound directly,
 * the threads find out: whoever moves what comes out to several (relay_exit.c) waits for gateways that are
 * booked, and this one is not yet. */
static int want_exit_queues(struct runtime *rt, struct broker *b, struct pg *pg, struct err *e)
{
    int wanted = (int)rt->config->exit.queues;
    if (wanted > 1 && transport_can_share_exit(b, e) != 0)
        return err_is_transient(e) ? -1 : err_wrap(e, "exit.queues: %d", wanted);
    int rc = relay_want_exit(pg, wanted, &rt->exit_queues, &rt->exit_bound, e);
    if (rt->exit_bound == TRANSPORT_EXIT_DIRECT)
        rt->exit_bound = TRANSPORT_EXIT_UNKNOWN;
    return rc;
}

static int try_postgres(struct runtime *rt, struct pg *pg, struct err *e)
{
    char vhost[256];
    int cell;
    if (broker_url_vhost(rt->config->amqp.url, vhost, sizeof vhost, e) != 0 ||
        migrate_check_owner(pg, e) != 0 || migrate_check(pg, "", vhost, false, e) != 0 ||
        migrate_check_copy(pg, e) != 0 ||
        settings_take_cell(pg, (int)rt->config->cell.number, &cell, e) != 0) /* before an id is made */
        return -1;
    atomic_store(&rt->cell_number, cell);
    if (pg_stay(pg, check_schema, rt, e) != 0 || make_partitions(rt, pg, e) != 0)
        return -1;
    atomic_store(&rt->stored_ready, true); /* HTTP may store from now on, with the broker away, too */
    server_status_succeeded(&rt->postgres);
    return 0;
}

/* How far the database had come, before anything is asked of it. */
static int learn_history(struct runtime *rt, struct broker *b, struct err *e)
{
    struct history_point p;
    struct err why = {0};
    int rc = topology_read_history(b, &p, &why, e);
    if (rc > 0)
        log_warning("RabbitMQ cannot keep how far the database has come, so one that goes back while no "
                    "gateway runs goes unnoticed: %s",
                    why.text);
    if (rc == 0)
        history_learn(&rt->history, &p);
    return rc < 0 ? -1 : 0;
}

static int try_rabbitmq(struct runtime *rt, struct broker *b, struct pg *pg, struct err *e)
{
    struct topology_found found = {.timed_queue = ""};
    if (startup_take_vhost(rt, b, pg, e) != 0 || startup_declare(rt, b, pg, true, &found, e) != 0)
        return -1;
    if (found.refused.kind != ERR_NONE) /* as long as nothing depends on this gateway yet */
        return err_set(e, found.refused.kind, "%s", found.refused.text);
    if (learn_history(rt, b, e) != 0 ||
        startup_feed_cell(rt, b, pg, e) != 0 || /* the intake is there: what comes now has a way */
        want_exit_queues(rt, b, pg, e) != 0 || startup_choose_transport(rt, pg, e) != 0)
        return -1;
    server_status_succeeded(&rt->rabbitmq);
    return 0;
}

/* One try of everything. *failed: who is to blame. */
static int try_once(struct runtime *rt, struct server_status **failed, struct err *e)
{
    struct broker *b = NULL;
    *failed = &rt->postgres;
    struct pg *pg = pg_open(rt->config->postgres.url, "postdate startup", e);
    int rc = pg ? try_postgres(rt, pg, e) : -1;
    if (rc == 0) {
        *failed = &rt->rabbitmq;
        b = sessions_open_broker(rt, "postdate startup", e);
        rc = b ? try_rabbitmq(rt, b, pg, e) : -1;
    }
    if (rc == 0) {
        *failed = &rt->postgres;
        rc = record_settings(rt, pg, e);
    }
    if (rc == 0)
        warn_of_open_wires(rt, pg_wire(pg));
    pg_close(pg);
    broker_close(b);
    return rc;
}

/* Is it worth another try? Who refuses a login or a right may be about to be given it, by definitions that
 * are imported, or by a script that runs beside: that is waited for, but not for long. */
static bool tries_again(const struct err *e, unsigned *refused)
{
    if (err_is_transient(e))
        return true;
    if (e->kind != ERR_PERMISSION || ++*refused >= REFUSED_TRIES)
        return false;
    if (*refused == 1)
        log_warning("%s; trying %d more times", e->text, REFUSED_TRIES - 1);
    return true;
}

int startup_run(struct runtime *rt, struct notifier *notifier, struct err *e)
{
    unsigned attempt = 0, refused = 0;
    while (!runtime_stopping(rt, STOP_INTAKE)) {
        struct server_status *failed;
        if (try_once(rt, &failed, e) == 0)
            return 0;
        if (!tries_again(e, &refused))
            return -1;
        service_alive(clock_monotonic_ms());
        if (e->kind != ERR_PERMISSION)
            server_status_failed(failed, e);
        int64_t pause_ms = e->kind == ERR_PERMISSION ? REFUSED_PAUSE_MS : server_status_pause_ms(&attempt);
        notifier_wait(notifier, -1, pause_ms * 1000000);
    }
    return err_set(e, ERR_STOPPING, "stopped before the servers were there");
}
