/* Running gateways: any number, no leader. An instance lives as long as its session lock is held and its
 * heartbeat is younger than the lease. */
#ifndef POSTDATE_SQL_INSTANCE_H
#define POSTDATE_SQL_INSTANCE_H

#include "core/err.h"
#include "sql/pg.h"
#include <stdbool.h>
#include <stdint.h>

#define INSTANCE_LEASE_MS 10000

/* What others see of an instance. */
struct instance {
    const char *name;      /* host:pid */
    const char *transport; /* who waits: timer, plugin, ttl */
};
/* Books a new instance and takes its session lock on c: losing c loses the instance. */
int instance_register(struct pg *c, const struct instance *self, int32_t *out_id, struct err *e);
/* 1: renewed; 0: the instance was buried by another one: all its claims are gone, register anew; -1: error.
 */
int instance_heartbeat(struct pg *c, int32_t id, struct err *e);
/* Buries instances whose connection is gone, ends the sessions of those whose lease ran out (they are buried
 * next time), and lets all ownerless claims wait again. sweep: look for ownerless claims even if nobody died.
 * Returns the number of instances buried, or -1. */
int instance_take_over(struct pg *c, int32_t own_id, bool sweep, struct err *e);
/* Lets this instance's remaining claims wait again (in doubt) and removes the instance. */
int instance_leave(struct pg *c, int32_t id, struct err *e);

#endif
