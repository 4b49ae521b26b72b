/* Running gateways: any number, no leader. An instance lives as long as the session that booked it is there
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

/* The name of this machine, as its gateways' names begin. */
void instance_host(char out[INSTANCE_HOST_SIZE]);

/* What others see of an instance. */
struct instance {
    const char *name;      /* host:pid */
    const char *transport; /* timer, native, plugin, ttl */
    int64_t running_ms;    /* for how long the program has run */
    int version;           /* of the schema, as it knows it */
    const char *program;   /* the program's version: version_string */
};
/* Books a new instance: losing c loses the instance. ERR_CONFIG: the schema is not for this version any more.
 */
int instance_register(struct pg *c, const struct instance *self, int32_t *out_id, struct err *e);
/* Renews the lease, and says whether RabbitMQ is away. 1: renewed; 0: the instance was buried by another one:
 * all its claims are gone, register anew; -1: error.
 */
int instance_heartbeat(struct pg *c, int32_t id, bool broker_away, struct err *e);
/* How many instances lived at at_ms (ms since 1970) and have not come back to their database since; -1. */
int instance_count_returning(struct pg *c, int64_t at_ms, struct err *e);
/* Who seems dead. A session that ended is given a moment: its gateway may live and say what became of the
 * messages in its hands, which would be published twice otherwise. */
#define INSTANCE_SILENCE_MS 300
#define INSTANCE_WATCH_MAX 32
struct instance_watch {
    int64_t from_ms; /* boottime: nobody is buried before */
    int64_t seen_ms; /* boottime: when these were found dead */
    int count;
    int32_t ids[INSTANCE_WATCH_MAX];
};
/* Ends the sessions of instances whose lease ran out, where it may, buries those that were dead already
 * INSTANCE_SILENCE_MS ago, at an earlier call with the same watch ({0} at first), and lets all ownerless
 * claims wait again. sweep: look for ownerless claims even if nobody died. While watch->count >
 * 0 the next call should come after INSTANCE_SILENCE_MS. Returns the number of instances buried, or -1. */
int instance_take_over(struct pg *c, int32_t own_id, struct instance_watch *watch, bool sweep, struct err *e);
/* Lets this instance's remaining claims wait again (in doubt) and removes the instance. */
int instance_leave(struct pg *c, int32_t id, struct err *e);

#endif
