/* The database: where it is, whether it is fit to keep messages, and whether this login may do what gateways
 * do. */
#include "gateway/cli/doctor/doctor.h"
#include "sql/admin/migrate.h"
#include "sql/pipeline/locked.h"
#include "sql/pipeline/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void report_wire(struct doctor *d)
{
    static const struct {
        enum finding finding;
        const char *what;
    } wires[] = {
        [PG_WIRE_LOCAL] = {FINDING_OK, "does not leave this machine"},
        [PG_WIRE_VERIFIED] = {FINDING_OK, "encrypted, the certificate is checked"},
        [PG_WIRE_UNVERIFIED] = {FINDING_WARN, "encrypted, but the server's identity is not verified"},
        [PG_WIRE_PLAIN] = {FINDING_WARN, "messages cross the network unencrypted"},
    };
    const enum finding f = wires[pg_wire(d->pg)].finding;
    doctor_report(d, f, "database.tls", "%s" REMEDY "%s", wires[pg_wire(d->pg)].what,
                  f == FINDING_OK ? ""
                                  : "add to postgres.url: sslmode=verify-full, and sslrootcert=FILE with the "
                                    "authority that signed the "
                                    "server's certificate");
}

/* The commands of docs/install.md, with the names that were used. A server that speaks another language is
 * not understood, and gets the general advice. */
static void refuse_connection(struct doctor *d, const struct err *e)
{
    static const char check[] = "database.connection";
    char role[PG_NAME_SIZE], database[PG_NAME_SIZE];
    snprintf(d->pg_why, sizeof d->pg_why, "no connection to PostgreSQL");
    if (pg_url_check(d->config->postgres.url, NULL) != 0)
        return doctor_fail(d, check,
                           "%s" REMEDY "correct postgres.url: postgresql://user:password@host:5432/database",
                           e->text);
    cli_database_names(d->config->postgres.url, role, database);
    if (pg_found_sharing()) {
        snprintf(d->pg_why, sizeof d->pg_why, "no session: the pooler shares sessions");
        return doctor_fail(d, "database.pooling",
                           "%s" REMEDY
                           "set postgres.url to the server itself, or to a pool with pool_mode = session",
                           e->text);
    }
    if (e->kind == ERR_PERMISSION && strstr(e->text, "role \"") != NULL && strstr(e->text, "does not exist"))
        doctor_fail(d, check,
                    "%s" REMEDY "sudo -u postgres createuser %s; or name another user in postgres.url",
                    e->text, role);
    else if (e->kind == ERR_PERMISSION)
        doctor_fail(d, check,
                    "%s" REMEDY "check user and password in postgres.url, and the server's pg_hba.conf",
                    e->text);
    else if (e->kind == ERR_CONFIG)
        doctor_fail(d, check,
                    "%s" REMEDY
                    "sudo -u postgres createdb -O %s -E UTF8 -T template0 %s; or name another database in "
                    "postgres.url",
                    e->text, role, database);
    else
        doctor_fail(d, check, "%s" REMEDY "start PostgreSQL, or check host and port in postgres.url",
                    e->text);
}

void doctor_check_database(struct doctor *d)
{
    struct err e;
    struct health_server s;
    char where[256];
    d->pg = cli_connect(d->config->postgres.url, "postdate doctor", DOCTOR_ANSWER_MS, &e);
    if (d->pg == NULL)
        return refuse_connection(d, &e);
    health_address(d->pg, where, sizeof where);
    if (health_server(d->pg, &s, &e) == 0)
        doctor_ok(d, "database.connection", "PostgreSQL %s, %s, as '%s'", s.version, where, s.user);
    else
        doctor_ok(d, "database.connection", "%s", where);
    report_wire(d);
    doctor_ok(d, "database.pooling",
              pg_is_pooled(d->pg) ? "through a pooler that keeps a session on its backend"
                                  : "a session of its own");
}

void doctor_finding(void *ctx, const struct health_finding *f)
{
    doctor_report(ctx, doctor_status(f->status), f->check, "%s" REMEDY "%s", f->detail, f->remedy);
}

void doctor_ask(struct doctor *d, const char *check, enum health_subject subject)
{
    struct err e;
    if (health_ask(d->pg, subject, d->config->delivery.max_delay_ms, doctor_finding, d, &e) != 0)
        doctor_error(d, check, &e);
}

void doctor_check_schema(struct doctor *d)
{
    struct health_server s = {0};
    struct err e;
    if (health_server(d->pg, &s, &e) == 0 && migrate_check(d->pg, "", "", false, &e) == 0) {
        d->schema_current = true;
        if (migrate_check_copy(d->pg, &e) != 0)
            return doctor_fail(d, "database.schema",
                               "%s" REMEDY
                               "if the original was deleted or stopped for good: postdate migrate --rebind",
                               e.text);
        doctor_ok(d, "database.schema", "it is for programs of schema version %d (%s)", migrate_version(),
                  migrate_fingerprint());
        return;
    }
    if (e.kind != ERR_CONFIG && e.kind != ERR_PERMISSION)
        return doctor_error(d, "database.schema", &e);
    if (e.kind == ERR_PERMISSION)
        doctor_fail(d, "database.schema",
                    "%s" REMEDY "make '%s' the owner of the schema postdate, or a member of that role",
                    e.text, s.user);
    else if (!s.has_schema && !s.may_create_schema)
        doctor_fail(d, "database.schema",
                    "%s" REMEDY
                    "as the database's owner: grant create on database … to \"%s\"; then: postdate migrate",
                    e.text, s.user);
    else
        doctor_fail(d, "database.schema", "%s" REMEDY "%s", e.text, migrate_remedy(d->pg));
}

/* The locks of the moment, and whether there are enough of them. */
void doctor_check_locks(struct doctor *d)
{
    struct locked_days locked;
    struct err e;
    char date[PARTITION_DATE_SIZE];
    if (locked_days_read(d->pg, &locked, &e) != 0)
        return doctor_error(d, "database.locks", &e);
    if (locked.all || locked.count > 0)
        doctor_warn(d, "database.locks",
                    "%s locked by %s: messages due then wait, all others are delivered" REMEDY
                    "wait for it to end; or: select pg_terminate_backend(PID)",
                    locked.all ? "postdate.message is" : partition_date(&locked.day[0], date), locked.who);
    else
        doctor_ask(d, "database.locks", HEALTH_LOCKS);
}

/* Whoever listens and leaves a transaction open fills it, in any database of the server. */
void doctor_check_notify(struct doctor *d)
{
    struct health_notify n;
    struct err e;
    for (int i = 0; i < HEALTH_NOTIFY_TRIES; i++) {
        if (i > 0)
            clock_nap_ms(1000);
        if (health_notify(d->pg, &n, &e) != 0)
            return doctor_error(d, "database.notify", &e);
        if (n.used <= HEALTH_NOTIFY_MUCH || n.named)
            break;
    }
    if (n.used <= HEALTH_NOTIFY_MUCH)
        return doctor_ok(d, "database.notify", "PostgreSQL's queue of NOTIFY is %.0f%% full", n.used * 100);
    doctor_warn(d, "database.notify",
                "PostgreSQL's queue of NOTIFY is %.0f%% full, as %s keeps it. Above 50%%, SQL users notify "
                "no gateway: messages due at once are up to half a delivery.lead later. Once it is full, all "
                "transactions of other applications that notify fail" REMEDY
                "wait for that transaction to end; or: select pg_terminate_backend(PID)",
                n.used * 100, n.holder[0] ? n.holder : "an open transaction of a session that listens");
}

void doctor_check_space(struct doctor *d)
{
    struct err e;
    switch (health_space(d->pg, &e)) {
    case 1:
        return doctor_ok(d, "database.space", "PostgreSQL's disk has space");
    case 0:
        return doctor_fail(
            d, "database.space",
            "PostgreSQL has no space left on its disk: messages cannot be stored, claimed or recorded as "
            "delivered; waiting messages are delivered once there is space: %s" REMEDY
            "free space on that disk, or enlarge it; find the use with df, and for retained WAL: select * "
            "from pg_replication_slots, pg_stat_archiver",
            e.text);
    default:
        doctor_skip(d, "database.space", "not tested: %s", e.text);
    }
}

enum finding doctor_judge_skew(int64_t off_ms, const char **remedy)
{
    *remedy = off_ms > DOCTOR_SKEW_WARN_MS
                  ? "switch on time synchronisation on both machines (timedatectl set-ntp true)"
                  : "";
    return off_ms > DOCTOR_SKEW_FAIL_MS   ? FINDING_FAIL
           : off_ms > DOCTOR_SKEW_WARN_MS ? FINDING_WARN
                                          : FINDING_OK;
}

void doctor_check_clock(struct doctor *d)
{
    struct err e;
    int64_t best_ms = INT64_MAX;
    for (int i = 0; i < 3; i++) { /* the quickest answer tells most */
        int64_t database_us, asked_ms = clock_wall_ms();
        if (store_clock(d->pg, &database_us, &e) != 0)
            return doctor_error(d, "clock.database", &e);
        int64_t answered_ms = clock_wall_ms();
        if (answered_ms - asked_ms < best_ms) {
            best_ms = answered_ms - asked_ms;
            d->clock_ahead_ms = (asked_ms + answered_ms) / 2 - database_us / 1000;
        }
    }
    d->has_clock = true;
    const char *remedy;
    int64_t off_ms = llabs(d->clock_ahead_ms);
    enum finding f = doctor_judge_skew(off_ms, &remedy);
    doctor_report(d, f, "clock.database", "this machine is %" PRId64 " ms %s the database%s" REMEDY "%s",
                  off_ms, d->clock_ahead_ms < 0 ? "behind" : "ahead of",
                  f == FINDING_OK ? ""
                                  : ": absolute times computed here are wrong by that; delays are not, they "
                                    "use the database's clock",
                  remedy);
}
