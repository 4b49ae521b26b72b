/* What `postdate doctor` asks the database. Every query is bounded by a statement_timeout, and the waiting
 * for its answer as well: open the connection with health_open. One thread. */
#ifndef POSTDATE_SQL_ADMIN_HEALTH_H
#define POSTDATE_SQL_ADMIN_HEALTH_H

#include "core/base/err.h"
#include "sql/connection/pg.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HEALTH_VERSION_MIN 140000 /* DETACH CONCURRENTLY */

/* As pg_open, for a session that never waits for ever: a server or proxy that is silent for answer_ms (>= 1)
 * is an ERR_AWAY, and a statement that runs longer than half of that an ERR_BUSY. Errors as pg_open. */
struct pg *health_open(const char *url, const char *name, int answer_ms, struct err *e);
/* "database 'x' at host:port", without a user or a password. */
void health_address(const struct pg *c, char *out, size_t out_size);

struct health_server {
    int version_num; /* 150014 */
    char version[64], user[64];
    bool standby, read_only; /* in recovery; default_transaction_read_only */
    char synchronous_commit[16];
    bool fsync, full_page_writes;
    bool may_create_schema, has_schema;
};
int health_server(struct pg *c, struct health_server *out, struct err *e);

/* May this session write? */
enum health_writable { HEALTH_WRITABLE, HEALTH_STANDBY, HEALTH_READ_ONLY };
int health_writable(struct pg *c, enum health_writable *out, struct err *e);

/* Does a session keep its backend? Both connections must be idle. */
struct health_session {
    bool pooled; /* something stands between: the backend is not the one that was announced at login */
    bool shared; /* transactions of one session go to several backends, or to another session's */
};
int health_session(struct pg *a, struct pg *b, struct health_session *out, struct err *e);

struct health_rights {
    bool usage, create, owner; /* of the schema; owner of the table message, or a member of that role */
    char schema_owner[64];
    char lacking[256]; /* tables that the login may not read and write, "" for none */
};
/* ERR_NOT_FOUND: no schema. */
int health_rights(struct pg *c, struct health_rights *out, struct err *e);

/* The roles of SQL users. */
struct health_roles {
    char missing[64]; /* "postdate_producer, postdate_reader": those that do not exist, "" for none */
    char weak[64];    /* those that exist and may not do what they are for */
};
int health_roles(struct pg *c, struct health_roles *out, struct err *e);

/* Time zones of recurring schedules. */
struct health_zones {
    int64_t count;
    char unknown[1700]; /* "US/Pacific (3), …", with the number of schedules; "" for none */
    char stale[1700];   /* the next occurrences were computed by other rules than this session reads */
};
int health_zones(struct pg *c, struct health_zones *out, struct err *e);

struct health_partitions {
    int64_t days, span; /* from today on: partitions there are, and days until the end of the last */
    int64_t end_ms;     /* messages due before this have one (if days = span) */
    int64_t now_ms;     /* the database's clock */
};
int health_partitions(struct pg *c, struct health_partitions *out, struct err *e);

struct health_room {
    int64_t days;  /* from today on that have a partition, without a gap */
    int64_t bytes; /* of the database */
    int64_t dead;  /* letters that are kept, counted up to 100,000 */
};
int health_room(struct pg *c, struct health_room *out, struct err *e);

struct health_locks {
    int64_t all_days;        /* that one query takes that is not bounded to some days */
    int64_t per_transaction; /* max_locks_per_transaction … */
    int64_t transactions;    /* … times this is how many there are */
};
int health_locks(struct pg *c, struct health_locks *out, struct err *e);

struct health_open_transaction {
    int64_t age_ms; /* -1: none */
    char who[256];
    int64_t hidden; /* sessions of other roles that this login cannot look into */
};
int health_oldest_transaction(struct pg *c, struct health_open_transaction *out, struct err *e);

/* How many messages the broker should hold (due later than in two seconds), and how many have not come out
 * for grace_ms; each counted up to most. */
struct health_handed {
    int64_t waiting, overdue;
};
int health_handed(struct pg *c, int64_t grace_ms, int64_t most, struct health_handed *out, struct err *e);

#endif
