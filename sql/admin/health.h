/* The database queries of `postdate doctor`. Each is bounded by a statement_timeout and by a timeout for its
 * answer: open the connection with health_open. One thread. */
#ifndef POSTDATE_SQL_ADMIN_HEALTH_H
#define POSTDATE_SQL_ADMIN_HEALTH_H

#include "core/base/err.h"
#include "sql/connection/pg.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As pg_open, for a session with timeouts: ERR_AWAY if a server or proxy does not answer for answer_ms (>=
 * 1), ERR_BUSY if a statement runs longer than half of that. Errors as pg_open. */
struct pg *health_open(const char *url, const char *name, int answer_ms, struct err *e);
/* "database 'x' at host:port", without a user or a password. */
void health_address(const struct pg *c, char *out, size_t out_size);

struct health_server {
    char version[64], user[64];
    bool may_create_schema, has_schema;
};
int health_server(struct pg *c, struct health_server *out, struct err *e);

/* Subjects that the database checks itself, each by the query health_….sql. */
enum health_subject {
    HEALTH_FIT,    /* the server: writable, durable */
    HEALTH_RIGHTS, /* of the login, in the schema */
    HEALTH_ROLES,  /* of SQL users */
    HEALTH_ZONES,  /* of recurring schedules */
    HEALTH_PARTITIONS,
    HEALTH_OPEN,  /* transactions */
    HEALTH_LOCKS, /* how many there are */
};
struct health_finding {
    char status[8], check[40];      /* "ok", "warn", "fail"; "database.zones" */
    char detail[2000], remedy[400]; /* "": none */
};
typedef void health_each(void *ctx, const struct health_finding *f);
/* max_delay_ms: of HEALTH_PARTITIONS. */
int health_ask(struct pg *c, enum health_subject subject, int64_t max_delay_ms, health_each *each, void *ctx,
               struct err *e);
/* Calls each for the rows of a query that returns findings: query is an enum sql_query. */
struct pg_params;
int health_find(struct pg *c, int query, const struct pg_params *p, health_each *each, void *ctx,
                struct err *e);

/* Can this session write? */
enum health_writable { HEALTH_WRITABLE, HEALTH_STANDBY, HEALTH_READ_ONLY };
int health_writable(struct pg *c, enum health_writable *out, struct err *e);

/* Is there space on the database's disk? Writes a megabyte to a temporary table and drops it. 1: yes; 0: no
 * (SQLSTATE 53100); -1: unknown, for example without the right to create the table. */
int health_space(struct pg *c, struct err *e);

struct health_room {
    int64_t days;  /* days from today on that have partitions, without a gap */
    int64_t bytes; /* of the database */
    int64_t dead;  /* dead letters, counted up to 100,000 */
};
int health_room(struct pg *c, struct health_room *out, struct err *e);

/* PostgreSQL's NOTIFY queue, which all databases of a server share. A session that listens in an open
 * transaction prevents its cleanup. When it is full, each COMMIT with a NOTIFY fails. This query also cleans
 * the queue as far as possible. holder: the session that prevents the cleanup, if the queue is more than
 * HEALTH_NOTIFY_MUCH full and the session is visible; else "". It is a guess until PostgreSQL has named it
 * (named): repeat the call after a second, at most HEALTH_NOTIFY_TRIES times. */
#define HEALTH_NOTIFY_MUCH 0.5
#define HEALTH_NOTIFY_TRIES 8
struct health_notify {
    double used; /* 0 to 1 */
    bool named;
    char holder[300];
};
int health_notify(struct pg *c, struct health_notify *out, struct err *e);

/* How many messages RabbitMQ should hold (due in more than two seconds), and how many it has not released
 * grace_ms after they were due; each counted up to most. */
struct health_handed {
    int64_t waiting, overdue;
};
int health_handed(struct pg *c, int64_t grace_ms, int64_t most, struct health_handed *out, struct err *e);

#endif
