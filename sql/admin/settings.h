/* What the SQL functions know of the configuration: one row, postdate.settings. */
#ifndef POSTDATE_SQL_ADMIN_SETTINGS_H
#define POSTDATE_SQL_ADMIN_SETTINGS_H

#include "core/base/err.h"
#include "core/message/accept.h"
#include "sql/connection/pg.h"
#include <stdint.h>

struct settings {
    const struct accept_rules
        *rules; /* default exchange, allow list, max_delay_ms, max_body, max_properties */
    int64_t key_memory_ms;
    int64_t lead_ms;              /* what is due within this and a second more wakes the gateways */
    const enum hold_policy *hold; /* NULL leaves what a gateway recorded (it alone knows) */
};

/* Records them; the last writer wins. And the prefix: that of broker_names, until the database belongs to
 * one. Needs the current schema. */
int settings_record(struct pg *c, const struct settings *s, struct err *e);

/* The number of this database's cell (byte 7 of its ids). wanted, 0 to 255: it is recorded where there is
 * none, and another one is refused with ERR_CONFIG; -1: none is wanted. *out: what the database has, or -1.
 */
int settings_take_cell(struct pg *c, int wanted, int *out, struct err *e);

/* The weight by which the intake is bound to the exchange of the cells: what was bound is written down when
 * it is, by one gateway at a time. */
#define SETTINGS_FEED_UNKNOWN (-1)
struct settings_feed {
    const char *exchange;
    int before; /* for bind: the weight that was bound to this exchange, or SETTINGS_FEED_UNKNOWN */
    int weight; /* the wanted one; bind may choose another one */
    int (*bind)(struct settings_feed *f, struct err *e);
    void *ctx;
};
/* Runs f->bind in a transaction; -1 where that failed, and nothing is written down. */
int settings_feed(struct pg *c, struct settings_feed *f, struct err *e);

/* What the gateway that started last recorded. */
int settings_hold_policy(struct pg *c, enum hold_policy *out, struct err *e);

#endif
