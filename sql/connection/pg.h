/* One connection to PostgreSQL, for one thread. Only sql/ uses <libpq-fe.h>. */
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

/* Sets defaults of libpq for values that neither the URL nor the environment has: connect_timeout. Call it
 * before threads are started. */
void pg_set_defaults(void);
/* Connects to a libpq URL or conninfo string with application_name `name`, time-outs and keepalives, UTF8,
 * UTC, synchronous_commit at least `on`, plan_cache_mode=force_custom_plan (partition pruning at plan time).
 * ERR_AWAY: not reachable (also starting up, shutting down); ERR_PERMISSION: login or database refused;
 * ERR_CONFIG: invalid URL, database does not exist or is not UTF8, a pooler that shares sessions is in
 * between. The text never contains a password. */
struct pg *pg_open(const char *url, const char *name, struct err *e);
/* The same for one of several databases: pg_stay does not apply, and the host found by pg_open is not tried
 * first. answer_ms > 0: if an answer takes longer, the connection is closed with ERR_AWAY; and silent hosts
 * are not awaited. */
struct pg *pg_open_other(const char *url, const char *name, int answer_ms, struct err *e);
/* From now on this process opens no other database: if the name points to a copy or a different database
 * later, ERR_CONFIG. A promoted standby is the same database. Each new session is checked, by its thread, and
 * closed if the check fails. Call it once, by one thread. */
typedef int pg_check(void *arg, struct pg *c, struct err *e);
int pg_stay(struct pg *c, pg_check *check, void *arg, struct err *e);
void pg_close(struct pg *c); /* NULL is fine */
/* Checks a URL or conninfo string without connecting. ERR_CONFIG; the text never contains a password. */
int pg_url_check(const char *url, struct err *e);
/* The role and the database of a connection to url, as text. If neither the url nor the environment has them,
 * the role is default_user (libpq: the process's user), and the database has the role's name. */
#define PG_NAME_SIZE 64
void pg_url_names(const char *url, const char *default_user, char role[PG_NAME_SIZE],
                  char database[PG_NAME_SIZE]);
/* The user as whom root must connect, for PostgreSQL's peer authentication: the service's user, if it exists
 * and neither the url nor $PGUSER has a user. NULL: the user of this process. Call it with one thread; memory
 * of getpwnam. */
const struct passwd *pg_url_service_user(const char *url);
int pg_socket(const struct pg *c);
bool pg_is_broken(const struct pg *c); /* the connection is lost: close it and open a new one */
bool pg_is_silent(const struct pg *c); /* it was closed because the server hangs */
/* Calls `tell` when a statement waits for a lock, and again when another session has it. */
void pg_tell_blocked(struct pg *c, void (*tell)(const char *who));
/* Did the last failed statement end by lock_timeout? Then nothing was changed, and the connection is usable.
 */
bool pg_is_locked_out(const struct pg *c);
/* … because an object was not in the state that it needs (SQLSTATE 55000)? */
bool pg_is_premature(const struct pg *c);
/* When the database of pg_open last refused to write for want of space on its disk (SQLSTATE 53100),
 * monotonic ms; 0: never, or pg_found_space() since. Any thread. */
int64_t pg_full_ms(void);
void pg_found_space(void);
/* How this connection is protected against reading and changing on the network. */
enum pg_wire {
    PG_WIRE_LOCAL,      /* within this machine */
    PG_WIRE_VERIFIED,   /* encrypted, and the server's identity is verified */
    PG_WIRE_UNVERIFIED, /* encrypted, but the server's identity is not verified */
    PG_WIRE_PLAIN,
};
enum pg_wire pg_wire(const struct pg *c);
bool pg_is_pooled(const struct pg *c); /* a proxy is in between, which keeps the session on its backend */
/* Has a session of this process found a pooler that shares sessions between transactions? Any thread. */
bool pg_found_sharing(void);

/* LISTEN postdate_wake. pg_drain_notifies, after poll(2) reports the socket readable: true if there were
 * notifications. It also works without LISTEN: it reads the socket, so that pg_is_broken shows whether
 * PostgreSQL has closed the connection. */
int pg_listen(struct pg *c, struct err *e);
bool pg_drain_notifies(struct pg *c);

/* Was a partition missing for a row, on any connection of this process, since the last call? Any thread. */
bool pg_missed_partition(void);

#endif
