/* Running gateways: any number, no leader. An instance is alive while the session that registered it exists
 * and its heartbeat is younger than the lease. */
#ifndef POSTDATE_SQL_PIPELINE_INSTANCE_H
#define POSTDATE_SQL_PIPELINE_INSTANCE_H

#include "core/base/err.h"
#include "sql/connection/pg.h"
#include <stdbool.h>
#include <stdint.h>

#define INSTANCE_LEASE_MS 10000
#define INSTANCE_HOST_SIZE 65 /* HOST_NAME_MAX of Linux: a pod's name may be as long */
#define INSTANCE_NAME_SIZE (INSTANCE_HOST_SIZE + 11)

/* The host name, the first part of gateways' names. */
void instance_host(char out[INSTANCE_HOST_SIZE]);

/* The visible data of an instance. */
struct instance {
    const char *name;      /* host:pid */
    const char *transport; /* timer, native, plugin, ttl */
    int64_t running_ms;    /* for how long the program has run */
    int version;           /* of the schema, as it knows it */
    const char *program;   /* the program's version: version_string */
};
/* Registers a new instance, which ends with the session c. ERR_CONFIG: the schema is too new for this
 * version. */
int instance_register(struct pg *c, const struct instance *self, int32_t *out_id, struct err *e);
/* Renews the lease, and records whether RabbitMQ is unavailable. 1: renewed; 0: another gateway took the
 * instance over, and its claims are released: register again; -1: error. */
int instance_heartbeat(struct pg *c, int32_t id, bool broker_away, struct err *e);
/* How many instances were alive at at_ms (ms since 1970) and have not reconnected to their database since;
 * -1: error. */
int instance_count_returning(struct pg *c, int64_t at_ms, struct err *e);
/* Instances that seem dead. After its session ended, an instance gets INSTANCE_SILENCE_MS to reconnect and
 * settle its messages, which would else be published twice. */
#define INSTANCE_SILENCE_MS 300
#define INSTANCE_WATCH_MAX 32
struct instance_watch {
    int64_t from_ms; /* boottime: no take-over before */
    int64_t seen_ms; /* boottime: when these were found dead, or their sessions were ended */
    bool told;       /* their sessions were ended */
    int count;
    int32_t ids[INSTANCE_WATCH_MAX];
};
/* Terminates the sessions of instances that were found dead INSTANCE_SILENCE_MS ago, at an earlier call with
 * the same watch ({0} at first), if permitted; takes over (removes) those that are dead still, after another
 * INSTANCE_SILENCE_MS if a session was terminated; and releases all claims without an owner. sweep: search
 * for claims without an owner even if no instance died. While watch->count > 0, call again after
 * INSTANCE_SILENCE_MS. Returns the number of instances taken over, or -1.
 */
int instance_take_over(struct pg *c, int32_t own_id, struct instance_watch *watch, bool sweep, struct err *e);
/* Releases this instance's remaining claims (in doubt) and removes the instance. */
int instance_leave(struct pg *c, int32_t id, struct err *e);

#endif
