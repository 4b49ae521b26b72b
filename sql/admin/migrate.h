/* Creating and upgrading the schema. */
#ifndef POSTDATE_SQL_ADMIN_MIGRATE_H
#define POSTDATE_SQL_ADMIN_MIGRATE_H

#include "core/base/err.h"
#include "sql/admin/settings.h"
#include "sql/connection/pg.h"
#include <stdint.h>

#define MIGRATE_IDENTITY_SIZE 40

struct migrate_options {
    int64_t max_delay_ms;            /* partitions are made this far ahead, plus a little */
    const char *vhost;               /* "" : not checked and not recorded */
    const char *broker;              /* cluster name, "" : not checked and not recorded */
    bool rebind;                     /* record another broker and vhost over what is there; a copy becomes a
                                      database of its own */
    const struct settings *settings; /* for the SQL functions */
    int cell;                        /* as settings_take_cell; -1: none */
};
struct migrate_report {
    int from_version, to_version;
    int partitions_made;
    int partitions_missing;      /* left to whoever has the lock: a running gateway makes them */
    struct err partitions_error; /* why those that are missing, all far ahead, could not be made */
    char missing_roles[64]; /* "postdate_producer,postdate_reader": those that this login may not create */
    /* Of a copy that became a database of its own: what it has now, and what the original has, which was made
     * in `origin`; else "". */
    char new_identity[MIGRATE_IDENTITY_SIZE], old_identity[MIGRATE_IDENTITY_SIZE], origin[80];
};

/* ERR_PERMISSION: this session could not take the role of the schema's owner. */
int migrate_check_owner(struct pg *c, struct err *e);

/* The version of the schema that this program needs: that of its last step. */
int migrate_version(void);
/* Of the files that make it, 16 hexadecimal digits; static. */
const char *migrate_fingerprint(void);

/* Brings the schema to migrate_version() and partitions to what max_delay needs. Idempotent; two at once take
 * turns. ERR_CONFIG: the schema is not for this program any more, was made of other files (as all here say),
 * or it belongs to another broker or vhost; ERR_BUSY: a lock was in the way for two minutes, or gateways run
 * that the step would leave behind; ERR_PERMISSION. */
int migrate_run(struct pg *c, const struct migrate_options *o, struct migrate_report *out, struct err *e);

/* The identity of this schema, a UUID's text; "" where the schema is missing. */
int migrate_identity(struct pg *c, char out[MIGRATE_IDENTITY_SIZE], struct err *e);

/* The broker turned out to be ours: records what it is called now. */
int migrate_record(struct pg *c, const char *broker, const char *vhost, struct err *e);

/* For programs that use the schema: ERR_CONFIG (text says what to do) when it is missing, older, for
 * newer programs, or made of other files than this program has by that version; also when broker/vhost (where
 * not "") differ from the recorded ones; records them where none are yet and record is true. */
int migrate_check(struct pg *c, const char *broker, const char *vhost, bool record, struct err *e);
/* ERR_CONFIG: this database is a copy of the one in which its schema was made: a gateway must not start on it
 * before --rebind. A standby that was promoted is the same database. */
int migrate_check_copy(struct pg *c, struct err *e);
/* What to do where migrate_check refuses, for people; a literal. */
const char *migrate_remedy(struct pg *c);

#endif
