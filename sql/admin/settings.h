/* The configuration that SQL functions use: one row, postdate.settings. */
#ifndef POSTDATE_SQL_ADMIN_SETTINGS_H
#define POSTDATE_SQL_ADMIN_SETTINGS_H

#include "core/base/err.h"
#include "core/message/accept.h"
#include "sql/connection/pg.h"
#include <stdint.h>

struct settings {
    /* default exchange, allow list, max_delay_ms, max_body, max_properties */
    const struct accept_rules *rules;
    int64_t key_memory_ms;
    int64_t lead_ms; /* storing a message that is due within this and a second more wakes the gateways */
    /* NULL: keeps the value that a gateway, which alone knows it, has recorded */
    const enum hold_policy *hold;
};

/* Records the settings; the last writer wins. Also records the prefix of broker_names, if none is recorded
 * yet. Needs the current schema. */
int settings_record(struct pg *c, const struct settings *s, struct err *e);

/* The number of this database's cell (byte 7 of its ids). wanted, 0 to 255: recorded if the database has
 * none; if it has a different one, ERR_CONFIG; -1: none is configured. *out: the number of the database, or
 * -1. */
int settings_take_cell(struct pg *c, int wanted, int *out, struct err *e);

/* The weight with which the intake is bound to the exchange of the cells. It is recorded when it is bound, by
 * one gateway at a time. */
#define SETTINGS_FEED_UNKNOWN (-1)
struct settings_feed {
    const char *exchange;
    int before; /* for bind: the weight that was bound to this exchange, or SETTINGS_FEED_UNKNOWN */
    int weight; /* the wanted one; bind may choose another one */
    int (*bind)(struct settings_feed *f, struct err *e);
    void *ctx;
};
/* Runs f->bind in a transaction; -1: it failed, and nothing is recorded. */
int settings_feed(struct pg *c, struct settings_feed *f, struct err *e);

/* The policy that the gateway which started last has recorded. */
int settings_hold_policy(struct pg *c, enum hold_policy *out, struct err *e);

#endif
