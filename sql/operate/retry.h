/* The policies for what consumers refuse (table postdate.retry_policy), as people set them. Blocks on
 * Postgres; the caller's thread. sql/pipeline/lineage.h lists them. */
#ifndef POSTDATE_SQL_OPERATE_RETRY_H
#define POSTDATE_SQL_OPERATE_RETRY_H

#include "core/base/arena.h"
#include "core/base/err.h"
#include "core/message/retry_policy.h"
#include "sql/connection/pg.h"
#include <stdbool.h>

/* Sets the policy with this pattern. ERR_REJECT: a value is out of range (retry_policy_check). Counts at once
 * for what is refused from now on. */
int retry_set(struct pg *c, const struct retry_policy *p, struct err *e);
/* ERR_NOT_FOUND: none has this pattern. */
int retry_remove(struct pg *c, struct bytes pattern, struct err *e);
/* The one with exactly this pattern, in the arena. ERR_NOT_FOUND. */
int retry_get(struct pg *c, struct bytes pattern, struct arena *a, struct retry_policy *out, struct err *e);
/* The one that counts for this queue, in the arena; is_default: none of those that were set. */
struct retry_match {
    struct retry_policy policy;
    bool is_default;
};
int retry_match(struct pg *c, struct bytes queue, struct arena *a, struct retry_match *out, struct err *e);

#endif
