/* Creating and upgrading the schema. */
#ifndef POSTDATE_SQL_ADMIN_MIGRATE_H
#define POSTDATE_SQL_ADMIN_MIGRATE_H

#include "core/base/err.h"
#include "sql/admin/settings.h"
#include "sql/connection/pg.h"
#include <stdint.h>

#define MIGRATE_IDENTITY_SIZE 40

struct migrate_options {
    int64_t max_delay_ms; /* partitions are created this far ahead, and two days more */
    const char *vhost;    /* "" : not checked and not recorded */
    const char *broker;   /* cluster name, "" : not checked and not recorded */
    bool rebind;          /* replace the recorded broker and vhost; a copy becomes an independent database */
    const struct settings *settings; /* for the SQL functions */
    int cell;                        /* as settings_take_cell; -1: none */
};
struct migrate_report {
    int from_version, to_version;
    int partitions_made;
    int partitions_missing;      /* left to the session with the lock: a running gateway creates them */
    struct err partitions_error; /* why the missing ones, all far ahead, could not be created */
    char missing_roles[64]; /* "postdate_producer,postdate_reader": roles that this login may not create */
    /* Of a copy that became an independent database: its new identity, and the identity of the original,
     * which was created in `origin`; else "". */
    char new_identity[MIGRATE_IDENTITY_SIZE], old_identity[MIGRATE_IDENTITY_SIZE], origin[80];
};

/* ERR_PERMISSION: this session cannot SET ROLE to the schema's owner. */
int migrate_check_owner(struct pg *c, struct err *e);

/* The version of the schema that this program needs: that of its last step. */
int migrate_version(void);
/* The fingerprint of the schema's files, 16 hexadecimal digits; static. */
const char *migrate_fingerprint(void);

/* Upgrades the schema to migrate_version(), and creates the partitions that max_delay_ms needs. Idempotent;
 * concurrent calls run one after the other. ERR_CONFIG: the schema is newer than this program, was made of
 * different files, or belongs to another broker or vhost; ERR_BUSY: a lock blocked it for two minutes, or
 * gateways are running that cannot use the new schema; ERR_PERMISSION. */
int migrate_run(struct pg *c, const struct migrate_options *o, struct migrate_report *out, struct err *e);

/* The identity of this schema, a UUID's text; "" where the schema is missing. */
int migrate_identity(struct pg *c, char out[MIGRATE_IDENTITY_SIZE], struct err *e);

/* Records the name and vhost of the broker, which was found to be ours. */
int migrate_record(struct pg *c, const char *broker, const char *vhost, struct err *e);

/* For programs that use the schema: ERR_CONFIG (text says what to do) when it is missing, older, for newer
 * programs, or made of other files than this program has for that version; also if broker or vhost (unless
 * "") differ from the recorded ones. If none are recorded and record is true, records them. */
int migrate_check(struct pg *c, const char *broker, const char *vhost, bool record, struct err *e);
/* ERR_CONFIG: this database is a copy: its schema was created in another database, and a gateway must not
 * start on it before `migrate --rebind`. A promoted standby is not a copy. */
int migrate_check_copy(struct pg *c, struct err *e);
/* The remedy, for users, if migrate_check fails; a literal. */
const char *migrate_remedy(struct pg *c);

#endif
