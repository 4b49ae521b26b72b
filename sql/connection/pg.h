/* One connection to Postgres, for one thread. Everything that <libpq-fe.h> offers is reached through sql/. */
#ifndef POSTDATE_SQL_CONNECTION_PG_H
#define POSTDATE_SQL_CONNECTION_PG_H

#include "core/base/bytes.h"
#include "core/base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct passwd; /* <pwd.h> */
struct pg;     /* opaque; owned by the thread that opened it */

struct pg_texts {
    struct bytes *items;
    size_t count;
};

/* What libpq takes where neither the URL nor the environment says otherwise: connect_timeout. Before there
 * are threads. */
void pg_set_defaults(void);
/* Connects to a libpq URL or conninfo string with application_name `name`, time-outs and keepalives, UTF8,
 * UTC, synchronous_commit at least `on`, plan_cache_mode=force_custom_plan (partition pruning at plan time).
 * ERR_AWAY: not reachable (also starting up, shutting down); ERR_PERMISSION: login or database refused;
 * ERR_CONFIG: bad URL, database does not exist or is not UTF8, a pooler that shares sessions is between. The
 * text never contains a password. */
struct pg *pg_open(const char *url, const char *name, struct err *e);
/* The same for one of several databases: pg_stay does not count for it, and it is not looked for where that
 * of pg_open was found. answer_ms > 0: every answer must come within this, else the connection is given up
 * with ERR_AWAY, and no silent host is waited for. */
struct pg *pg_open_other(const char *url, const char *name, int answer_ms, struct err *e);
/* From now on this process opens no other database: a name that moves to a copy, or a database that another
 * took the name of, is ERR_CONFIG. A standby that was promoted is the same. Each session that is opened is
 * checked, by its thread, and given up where that fails. Once, by one thread. */
typedef int pg_check(void *arg, struct pg *c, struct err *e);
int pg_stay(struct pg *c, pg_check *check, void *arg, struct err *e);
void pg_close(struct pg *c); /* NULL is fine */
/* Checks a URL or conninfo string without connecting. ERR_CONFIG; the text never contains a password. */
int pg_url_check(const char *url, struct err *e);
/* The role and the database that a connection to url asks for, as text; where neither the url nor the
 * environment says which, the role is default_user (libpq: the process's user), and the database is called
 * like the role. */
#define PG_NAME_SIZE 64
void pg_url_names(const char *url, const char *default_user, char role[PG_NAME_SIZE],
                  char database[PG_NAME_SIZE]);
/* Whom root is to connect as, for PostgreSQL's peer authentication to know it: the service's user, where
 * there is one and neither the url nor $PGUSER names somebody. NULL: as this process. With one thread; of
 * getpwnam. */
const struct passwd *pg_url_service_user(const char *url);
int pg_socket(const struct pg *c);
bool pg_is_broken(const struct pg *c); /* the connection is gone: close and open again */
bool pg_is_silent(const struct pg *c); /* it was given up, because the server stands still */
/* Calls `tell` when a statement waits for a lock, and when somebody else holds it. */
void pg_tell_blocked(struct pg *c, void (*tell)(const char *who));
/* Was it a lock_timeout that the last failed statement ended with? Nothing was done, the connection is fine.
 */
bool pg_is_locked_out(const struct pg *c);
/* When the database of pg_open last refused to write for want of space on its disk (SQLSTATE 53100),
 * monotonic ms; 0: never, or pg_found_space() since. Any thread. */
int64_t pg_full_ms(void);
void pg_found_space(void);
/* Who could read or change on the way what this connection says. */
enum pg_wire {
    PG_WIRE_LOCAL,      /* it does not leave this machine */
    PG_WIRE_VERIFIED,   /* encrypted, and the server has shown who it is */
    PG_WIRE_UNVERIFIED, /* encrypted, but to whoever answered */
    PG_WIRE_PLAIN,
};
enum pg_wire pg_wire(const struct pg *c);
bool pg_is_pooled(const struct pg *c); /* something stands between, which keeps the session on its backend */
/* Has a session of this process found a pooler that shares sessions between transactions? Any thread. */
bool pg_found_sharing(void);

/* LISTEN postdate_wake; then pg_drain_notifies after poll(2) says readable: true if any came. Without LISTEN,
 * too, it reads what came, so that pg_is_broken tells whether Postgres has closed the connection. */
int pg_listen(struct pg *c, struct err *e);
bool pg_drain_notifies(struct pg *c);

/* The partition of some row was not there, on whatever connection of this process, since this was asked last.
 * Any thread. */
bool pg_missed_partition(void);

#endif
