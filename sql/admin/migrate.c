#include "sql/admin/migrate.h"

#include "sql/admin/partition.h"
#include "sql/admin/strangers.h"
#include "sql/connection/pg_internal.h"
#include "sql_embedded.h"

#include <stdio.h>
#include <string.h>

/* Excludes other migrations only. Gateways may run beside it, and their intakes go on. */
#define LOCK_META "lock table postdate.meta in share update exclusive mode"

struct meta {
    int version; /* 0: no schema */
    char broker[128], vhost[256], identity[MIGRATE_IDENTITY_SIZE];
    bool copy;       /* this is not the database in which the identity was made … */
    char origin[80]; /* … but this one */
};

int migrate_version(void)
{
    return sql_schema_steps[sql_schema_step_count - 1].version;
}

/* What there is of the schema. ERR_CONFIG: no release made it. */
static int meta_exists(struct pg *c, bool *schema, bool *table, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_migrate_meta_exists, NULL, e);
    if (!r)
        return -1;
    *schema = pg_bool(r, 0, 0);
    *table = pg_bool(r, 0, 1);
    bool released = pg_bool(r, 0, 2);
    PQclear(r);
    return !*table || released
               ? 0
               : err_set(e, ERR_CONFIG,
                         "schema postdate was made by a development version before the first release and "
                         "cannot be upgraded: drop it with all its messages (`drop schema postdate cascade` "
                         "in psql), then run `postdate migrate`");
}

static int meta_read(struct pg *c, struct meta *m, struct err *e)
{
    memset(m, 0, sizeof *m);
    bool schema, table;
    if (meta_exists(c, &schema, &table, e) != 0)
        return -1;
    if (!table)
        return 0;
    PGresult *r = pg_query(c, sql_query_migrate_meta_read, NULL, e);
    if (!r)
        return -1;
    if (PQntuples(r) == 1) {
        m->version = pg_int4(r, 0, 0);
        pg_text(r, 0, 1, m->broker, sizeof m->broker);
        pg_text(r, 0, 2, m->vhost, sizeof m->vhost);
        pg_text(r, 0, 3, m->identity, sizeof m->identity);
        m->copy = pg_bool(r, 0, 4);
        pg_text(r, 0, 5, m->origin, sizeof m->origin);
    }
    PQclear(r);
    return 0;
}

static int refuse_newer(const struct meta *m, struct err *e)
{
    if (m->version <= migrate_version())
        return 0;
    return err_set(e, ERR_CONFIG,
                   "schema postdate is at version %d, this program knows %d: use the newer program",
                   m->version, migrate_version());
}

static int refuse_foreign(const struct meta *m, const char *broker, const char *vhost, struct err *e)
{
    if (*vhost && *m->vhost && strcmp(vhost, m->vhost) != 0)
        return err_set(
            e, ERR_CONFIG,
            "schema postdate belongs to vhost '%s', amqp.url names vhost '%s': use another database, or "
            "`postdate migrate --rebind` if the messages are to go there",
            m->vhost, vhost);
    if (*broker && *m->broker && strcmp(broker, m->broker) != 0)
        return err_set(
            e, ERR_CONFIG,
            "schema postdate belongs to RabbitMQ cluster '%s', amqp.url leads to cluster '%s': use another "
            "database, or `postdate migrate --rebind` if the messages are to go there",
            m->broker, broker);
    return 0;
}

static int refuse_copy(struct pg *c, const struct meta *m, struct err *e)
{
    if (!m->copy)
        return 0;
    return err_set(e, ERR_CONFIG,
                   "database '%s' is a copy (its schema postdate was made in %s), or was moved: beside the "
                   "original it would deliver messages twice, and cancelled ones. If the original is gone or "
                   "stopped for good: `postdate migrate --rebind`",
                   PQdb(c->conn), m->origin);
}

/* A copy gets an identity of its own, so that vhosts and databases tell it from the original. */
static int adopt(struct pg *c, struct migrate_report *out, const struct meta *m, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_migrate_meta_adopt, NULL, e);
    if (!r)
        return -1;
    pg_text(r, 0, 0, out->new_identity, sizeof out->new_identity);
    PQclear(r);
    memcpy(out->old_identity, m->identity, sizeof out->old_identity);
    memcpy(out->origin, m->origin, sizeof out->origin);
    return pg_do(c, sql_query_migrate_batch_restored, NULL, e);
}

static int bind_meta(struct pg *c, const char *broker, const char *vhost, bool overwrite, struct err *e)
{
    return pg_do(c, sql_query_migrate_meta_bind, PG_WITH(as_str(broker), as_str(vhost), as_bool(overwrite)),
                 e);
}

static int try_create_meta(struct pg *c, bool schema, struct err *e)
{
    if (!schema && pg_exec(c, "create schema if not exists postdate", e) != 0)
        return -1;
    return pg_exec(c, sql_query_migrate_meta_create, e);
}

/* Two that begin at the same time may both find nothing, and one of them fails; then it is there. */
static int create_meta(struct pg *c, struct err *e)
{
    bool schema, table;
    if (meta_exists(c, &schema, &table, e) != 0)
        return -1;
    if (table || try_create_meta(c, schema, NULL) == 0)
        return 0;
    return try_create_meta(c, schema, e) == 0 ? 0 : err_wrap(e, "cannot create schema postdate");
}

static int run_steps(struct pg *c, int version, struct err *e)
{
    char update[80];
    snprintf(update, sizeof update, "update postdate.meta set version = %d", version);
    for (size_t i = 0; i < sql_schema_step_count; i++) {
        const struct sql_schema_step *step = &sql_schema_steps[i];
        if (step->version == version && pg_exec(c, step->text, e) != 0)
            return err_wrap(e, "schema step %s", step->name);
    }
    return pg_exec(c, update, e);
}

/* Begins a transaction beside which nobody migrates, and reads what is there now. */
static int begin_alone(struct pg *c, struct meta *m, struct err *e)
{
    if (pg_begin(c, e) != 0)
        return -1;
    if (pg_exec(c, LOCK_META, e) != 0)
        return err_wrap(e, "waiting for another migration");
    return meta_read(c, m, e);
}

/* All files of one version, in one transaction. */
static int run_version(struct pg *c, int version, struct err *e)
{
    struct meta m = {0};
    int rc = begin_alone(c, &m, e);
    if (rc == 0 && m.version < version) /* else another one has done it meanwhile */
        rc = run_steps(c, version, e);
    if (rc == 0 && pg_commit(c, e) == 0)
        return 0;
    pg_rollback(c);
    return err_wrap(e, "schema version %d", version);
}

static int ensure_roles(struct pg *c, struct migrate_report *out, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_migrate_ensure_roles, NULL, e);
    if (!r)
        return -1;
    pg_text(r, 0, 0, out->missing_roles, sizeof out->missing_roles);
    PQclear(r);
    return 0;
}

static int record(struct pg *c, const struct migrate_options *o, struct migrate_report *out, struct err *e)
{
    struct meta m = {0};
    if (begin_alone(c, &m, e) == 0 && (!m.copy || adopt(c, out, &m, e) == 0) &&
        bind_meta(c, o->broker, o->vhost, o->rebind, e) == 0 && settings_record(c, o->settings, e) == 0 &&
        ensure_roles(c, out, e) == 0 && pg_commit(c, e) == 0)
        return 0;
    pg_rollback(c);
    return -1;
}

static int migrate_all(struct pg *c, const struct migrate_options *o, struct migrate_report *out,
                       struct err *e)
{
    struct meta m;
    if (strangers_check_self(c, e) != 0 || meta_read(c, &m, e) != 0 || refuse_newer(&m, e) != 0)
        return -1;
    if (!o->rebind && (refuse_copy(c, &m, e) != 0 || refuse_foreign(&m, o->broker, o->vhost, e) != 0))
        return -1;
    out->from_version = m.version;
    if (create_meta(c, e) != 0 || strangers_take(c, &out->strangers, e) != 0)
        return -1;
    out->to_version = migrate_version();
    for (int version = m.version + 1; version <= out->to_version; version++)
        if (run_version(c, version, e) != 0)
            return out->strangers.count == 0
                       ? -1
                       : err_wrap(e, "%s must be given to the schema's owner first (%s)",
                                  out->strangers.first, out->strangers.remedy);
    if (record(c, o, out, e) != 0)
        return -1;
    out->partitions_made = partitions_ensure(c, o->max_delay_ms, &out->partitions_missing, e);
    if (out->partitions_made >= 0)
        return 0;
    if (out->partitions_missing == 0)
        return -1;
    out->partitions_made = 0;
    out->partitions_error = *e;
    err_clear(e);
    return 0;
}

int migrate_run(struct pg *c, const struct migrate_options *o, struct migrate_report *out, struct err *e)
{
    memset(out, 0, sizeof *out);
    int rc = pg_exec(c, "set lock_timeout = '120s'", e) == 0 ? migrate_all(c, o, out, e) : -1;
    pg_exec(c, "set lock_timeout = '" PG_LOCK_TIMEOUT "'", NULL);
    return rc;
}

int migrate_identity(struct pg *c, char out[MIGRATE_IDENTITY_SIZE], struct err *e)
{
    struct meta m;
    if (meta_read(c, &m, e) != 0)
        return -1;
    memcpy(out, m.identity, sizeof m.identity);
    return 0;
}

int migrate_record(struct pg *c, const char *broker, const char *vhost, struct err *e)
{
    struct meta m;
    if (meta_read(c, &m, e) != 0)
        return -1;
    bool same = strcmp(broker, m.broker) == 0 && strcmp(vhost, m.vhost) == 0;
    return same ? 0 : bind_meta(c, broker, vhost, true, e);
}

int migrate_check(struct pg *c, const char *broker, const char *vhost, bool record, struct err *e)
{
    struct meta m;
    if (meta_read(c, &m, e) != 0)
        return -1;
    if (m.version == 0)
        return err_set(e, ERR_CONFIG, "database '%s' has no schema postdate: run `postdate migrate`",
                       PQdb(c->conn));
    if (refuse_newer(&m, e) != 0)
        return -1;
    if (m.version < migrate_version())
        return err_set(e, ERR_CONFIG,
                       "schema postdate is at version %d, this program needs %d: run `postdate migrate`",
                       m.version, migrate_version());
    if (refuse_foreign(&m, broker, vhost, e) != 0)
        return -1;
    bool news = (*broker && !*m.broker) || (*vhost && !*m.vhost);
    return record && news ? bind_meta(c, broker, vhost, false, e) : 0;
}

int migrate_check_copy(struct pg *c, struct err *e)
{
    struct meta m;
    return meta_read(c, &m, e) != 0 ? -1 : refuse_copy(c, &m, e);
}

const char *migrate_remedy(struct pg *c)
{
    struct meta m;
    struct err e = {0};
    if (meta_read(c, &m, &e) == 0 && m.version > migrate_version())
        return "install the newer version of Postdate on this machine";
    return e.kind == ERR_CONFIG ? "in psql: drop schema postdate cascade; then: postdate migrate"
                                : "postdate migrate";
}
