#include "sql/admin/migrate.h"

#include "core/base/clock.h"
#include "core/base/names.h"
#include "core/base/version.h"
#include "sql/admin/partition.h"
#include "sql/connection/pg_internal.h"
#include "sql/pipeline/instance.h"
#include "sql_embedded.h"

#include <stdio.h>
#include <string.h>

/* Who waits for a lock holds up all that come behind it: so not for long, and again after a pause. Less than
 * PostgreSQL's deadlock_timeout: of two that wait for each other this one gives way. */
#define LOCK_TIMEOUT "500ms"
#define PAUSE_MS 2000
#define PATIENCE_MS 120000
/* Excludes other migrations only. Gateways may run beside it, and their intakes go on. */
#define LOCK_META "lock table postdate.meta in share update exclusive mode"

struct meta {
    int version, oldest; /* 0: no schema */
    bool other_files;    /* the only thing that is known of it */
    char broker[128], vhost[256], prefix[NAMES_SIZE], identity[MIGRATE_IDENTITY_SIZE];
    bool copy;       /* this is not the database in which the identity was made … */
    char origin[80]; /* … but this one */
};

int migrate_check_owner(struct pg *c, struct err *e)
{
    bool is_owner = true;
    char owner[200], self[200];
    if (pg_take(pg_query(c, sql_query_migrate_owner, NULL, e),
                PG_ROW(PG_TO(is_owner), PG_TO(owner), PG_TO(self)), NULL, e) < 0)
        return -1;
    if (is_owner)
        return 0;
    return err_set(e, ERR_PERMISSION,
                   "schema postdate belongs to %s, and login %s may not act as that role: use it in "
                   "postgres.url, or: grant %s to %s",
                   owner, self, owner, self);
}

int migrate_version(void)
{
    return sql_schema_steps[sql_schema_step_count - 1].version;
}

/* What there is of the schema. */
static int meta_exists(struct pg *c, bool *schema, bool *table, struct err *e)
{
    return pg_ask(c, sql_query_migrate_meta_exists, NULL, PG_ROW(PG_TO(*schema), PG_TO(*table)), e);
}

static const char *fingerprint_of(int version)
{
    return sql_schema_fingerprints[version - 1];
}

const char *migrate_fingerprint(void)
{
    return fingerprint_of(migrate_version());
}

/* A version is made of the same files for ever once it is released. Before, two programs may know different
 * ones by the same number, and nothing leads from one to the other. */
static int refuse_other_files(struct pg *c, bool *other, struct err *e)
{
    int version = 0;
    char fingerprint[17], made_by[60];
    *other = false;
    if (pg_ask(c, sql_query_migrate_made, PG_WITH(as_int4(migrate_version())),
               PG_ROW(PG_TO(version), PG_TO(fingerprint), PG_TO(made_by)), e) != 0)
        return -1;
    int known = version < migrate_version() ? version : migrate_version();
    if (known == 0 || strcmp(fingerprint, fingerprint_of(known)) == 0)
        return 0;
    *other = true;
    return err_set(
        e, ERR_CONFIG,
        "schema postdate was made by %s (%s), this is %s (%s), and the schema of a development version "
        "cannot be upgraded: install that version again; or, as the schema's owner, if the "
        "messages in it may be lost: drop schema postdate cascade, then `postdate migrate --rebind`",
        *made_by ? made_by : "an older development version", *fingerprint ? fingerprint : "no fingerprint",
        version_string, fingerprint_of(known));
}

static int meta_read(struct pg *c, struct meta *m, struct err *e)
{
    memset(m, 0, sizeof *m);
    bool schema, table;
    if (meta_exists(c, &schema, &table, e) != 0)
        return -1;
    if (!table)
        return 0;
    if (refuse_other_files(c, &m->other_files, e) != 0)
        return -1;
    return pg_ask(c, sql_query_migrate_meta_read, NULL,
                  PG_ROW(PG_TO(m->version), PG_TO(m->broker), PG_TO(m->vhost), PG_TO(m->identity),
                         PG_TO(m->copy), PG_TO(m->origin), PG_TO(m->oldest), PG_TO(m->prefix)),
                  e);
}

static int refuse_old_program(const struct meta *m, struct err *e)
{
    if (m->oldest <= migrate_version())
        return 0;
    return err_set(e, ERR_CONFIG,
                   "schema postdate is at version %d, for programs of version %d or newer, and this one has "
                   "version %d: install the newer release",
                   m->version, m->oldest, migrate_version());
}

static int refuse_foreign(const struct meta *m, const char *broker, const char *vhost, struct err *e)
{
    if (*vhost && *m->vhost && strcmp(vhost, m->vhost) != 0)
        return err_set(e, ERR_CONFIG,
                       "schema postdate belongs to vhost '%s', amqp.url names vhost '%s': use another "
                       "database, or `postdate migrate --rebind` if the messages are to be delivered there",
                       m->vhost, vhost);
    if (*vhost && *m->prefix && strcmp(broker_names.prefix, m->prefix) != 0)
        return err_set(
            e, ERR_CONFIG,
            "schema postdate belongs to the prefix '%s', amqp.prefix is '%s': messages that RabbitMQ holds "
            "are found under the names of '%s' only. Set amqp.prefix = %s, use another database, or "
            "`postdate migrate --rebind` if the messages are to be delivered there",
            m->prefix, broker_names.prefix, m->prefix, m->prefix);
    if (*broker && *m->broker && strcmp(broker, m->broker) != 0)
        return err_set(
            e, ERR_CONFIG,
            "schema postdate belongs to RabbitMQ cluster '%s', amqp.url connects to cluster '%s': use "
            "another database, or `postdate migrate --rebind` if the messages are to be delivered there",
            m->broker, broker);
    return 0;
}

static int refuse_copy(struct pg *c, const struct meta *m, struct err *e)
{
    if (!m->copy)
        return 0;
    return err_set(e, ERR_CONFIG,
                   "database '%s' is a copy (its schema postdate was made in %s), or was moved: beside the "
                   "original it would deliver messages twice, and cancelled ones. If the original was "
                   "deleted or stopped for good: `postdate migrate --rebind`",
                   PQdb(c->conn), m->origin);
}

/* A copy gets an identity of its own, so that vhosts and databases tell it from the original. */
static int adopt(struct pg *c, struct migrate_report *out, const struct meta *m, struct err *e)
{
    if (pg_ask(c, sql_query_migrate_meta_adopt, NULL, PG_ROW(PG_TO(out->new_identity)), e) != 0)
        return -1;
    memcpy(out->old_identity, m->identity, sizeof out->old_identity);
    memcpy(out->origin, m->origin, sizeof out->origin);
    return pg_do(c, sql_query_migrate_batch_restored, NULL, e);
}

static int bind_meta(struct pg *c, const char *broker, const char *vhost, bool overwrite, struct err *e)
{
    return pg_do(c, sql_query_migrate_meta_bind,
                 PG_WITH(as_str(broker), as_str(vhost), as_bool(overwrite), as_str(broker_names.prefix)), e);
}

static int try_create_meta(struct pg *c, bool schema, struct err *e)
{
    if (!schema && pg_exec(c, "create schema if not exists postdate", e) != 0)
        return -1;
    return pg_exec(c, sql_queries[sql_query_migrate_meta_create].text, e);
}

/* Of several that begin at the same time all may find nothing, and each but one fails: once at the schema,
 * once at the table; then both are there. */
static int create_meta(struct pg *c, struct err *e)
{
    bool schema, table;
    if (meta_exists(c, &schema, &table, e) != 0)
        return -1;
    for (int tries = 0; !table && tries < 3; tries++)
        table = try_create_meta(c, schema, e) == 0;
    return table ? 0 : err_wrap(e, "cannot create schema postdate");
}

/* A schema serves the gateways of its own version and of the one before: no other one may be running. */
static int note_version(struct pg *c, int version, struct err *e)
{
    char text[200];
    if (pg_do(c, sql_query_migrate_note_version,
              PG_WITH(as_int4(version), as_str(fingerprint_of(version)), as_str(version_string)), e) != 0)
        return -1;
    if (version == 1) /* no schema existed before */
        return 0;
    if (pg_ask(c, sql_query_migrate_too_old, PG_WITH(as_int4(version - 1), as_int8(INSTANCE_LEASE_MS)),
               PG_ROW(PG_TO(text)), e) != 0)
        return -1;
    return text[0] == '\0' ? 0
                           : err_set(e, ERR_BUSY,
                                     "gateways run that do not know version %d: %s. Install the release "
                                     "between first, or stop them",
                                     version - 1, text);
}

static int run_steps(struct pg *c, int version, struct err *e)
{
    for (size_t i = 0; i < sql_schema_step_count; i++) {
        const struct sql_schema_step *step = &sql_schema_steps[i];
        if (step->version == version && pg_exec(c, step->text, e) != 0)
            return err_wrap(e, "schema step %s", step->name);
    }
    return 0;
}

/* Begins a transaction that excludes other migrations, and reads the present version. */
static int begin_alone(struct pg *c, struct meta *m, struct err *e)
{
    if (pg_begin(c, e) != 0)
        return -1;
    if (pg_exec(c, LOCK_META, e) != 0)
        return err_wrap(e, "waiting for another migration");
    return meta_read(c, m, e);
}

static int ensure_roles(struct pg *c, struct migrate_report *out, struct err *e)
{
    return pg_ask(c, sql_query_migrate_ensure_roles, NULL, PG_ROW(PG_TO(out->missing_roles)), e);
}

/* All files of one version, in one transaction, with the rights to what they make: building indexes, after
 * it, may take hours. */
static int run_version(struct pg *c, int version, struct migrate_report *out, struct err *e)
{
    struct meta m = {0};
    int rc = begin_alone(c, &m, e);
    if (rc == 0 && m.version < version) /* else another one has done it meanwhile */
        rc = note_version(c, version, e) == 0 && run_steps(c, version, e) == 0 ? ensure_roles(c, out, e) : -1;
    if (rc == 0 && pg_commit(c, e) == 0)
        return 0;
    pg_rollback(c);
    return err_wrap(e, "schema version %d", version);
}

/* Runs it with that lock_timeout. */
static int exec_patiently(struct pg *c, const char *lock_timeout, const char *text, struct err *e)
{
    char set[60];
    snprintf(set, sizeof set, "set lock_timeout = '%s'", lock_timeout);
    return pg_exec(c, set, e) == 0 ? pg_exec(c, text, e) : -1;
}

/* Each statement by itself, as `concurrently` requires. The lock excludes other migrations: a session that
 * has it is named in the error, and nothing else is delayed. */
static int build_indexes(struct pg *c, struct err *e)
{
    bool alone = false;
    int rc = 0;
    while (rc == 0) {
        PGresult *r = pg_query(c, sql_query_migrate_index_next, PG_WITH(as_str(LOCK_TIMEOUT)), e);
        if (!r)
            return -1;
        if (PQntuples(r) == 0) {
            PQclear(r);
            return 0;
        }
        rc = alone ? exec_patiently(c, PQgetvalue(r, 0, 0), PQgetvalue(r, 0, 1), e)
                   : pg_exec(c, "select pg_advisory_lock('postdate.meta'::regclass::oid::bigint)", e);
        alone = true;
        PQclear(r);
    }
    return err_wrap(e, "building indexes");
}

static int record(struct pg *c, const struct migrate_options *o, struct migrate_report *out, struct err *e)
{
    struct meta m = {0};
    int cell;
    if (begin_alone(c, &m, e) == 0 && (!m.copy || adopt(c, out, &m, e) == 0) &&
        bind_meta(c, o->broker, o->vhost, o->rebind, e) == 0 &&
        (!o->rebind || pg_do(c, sql_query_migrate_shards, NULL, e) == 0) &&
        settings_record(c, o->settings, e) == 0 && settings_take_cell(c, o->cell, &cell, e) == 0 &&
        ensure_roles(c, out, e) == 0 && pg_commit(c, e) == 0)
        return 0;
    pg_rollback(c);
    return -1;
}

static int migrate_all(struct pg *c, const struct migrate_options *o, struct migrate_report *out,
                       struct err *e)
{
    struct meta m;
    if (migrate_check_owner(c, e) != 0 || meta_read(c, &m, e) != 0 || refuse_old_program(&m, e) != 0)
        return -1;
    if (!o->rebind && (refuse_copy(c, &m, e) != 0 || refuse_foreign(&m, o->broker, o->vhost, e) != 0))
        return -1;
    if (out->to_version == 0)
        out->from_version = m.version;
    out->to_version = m.version > migrate_version() ? m.version : migrate_version();
    if (create_meta(c, e) != 0)
        return -1;
    for (int version = m.version + 1; version <= out->to_version; version++)
        if (run_version(c, version, out, e) != 0)
            return -1;
    if (build_indexes(c, e) != 0 || record(c, o, out, e) != 0)
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
    int rc;
    int64_t end_ms = clock_monotonic_ms() + PATIENCE_MS;
    memset(out, 0, sizeof *out);
    for (;;) {
        pg_forget_failure(c);
        rc = pg_exec(c, "set lock_timeout = '" LOCK_TIMEOUT "'", e) == 0 ? migrate_all(c, o, out, e) : -1;
        if (rc == 0 || !pg_is_locked_out(c) || clock_monotonic_ms() > end_ms)
            break;
        clock_nap_ms(PAUSE_MS);
    }
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
    bool same = strcmp(broker, m.broker) == 0 && strcmp(vhost, m.vhost) == 0 &&
                strcmp(broker_names.prefix, m.prefix) == 0;
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
    if (refuse_old_program(&m, e) != 0)
        return -1;
    if (m.version < migrate_version())
        return err_set(e, ERR_CONFIG,
                       "schema postdate is at version %d, this program needs %d: run `postdate migrate`",
                       m.version, migrate_version());
    if (refuse_foreign(&m, broker, vhost, e) != 0)
        return -1;
    bool news = (*broker && !*m.broker) || (*vhost && (!*m.vhost || !*m.prefix));
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
    if (meta_read(c, &m, &e) == 0 && m.oldest > migrate_version())
        return "install the newer version of Postdate on this machine";
    return m.other_files ? "install the version that made it; or, if the messages in it may be lost: "
                           "drop schema postdate cascade, then postdate migrate --rebind"
                         : "postdate migrate";
}
