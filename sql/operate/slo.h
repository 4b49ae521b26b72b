/* The objective for lateness: how many deliveries were within it. Counts are kept by the minute, later by the
 * hour (sql/schema/001_84_slo.sql). */
#ifndef POSTDATE_SQL_OPERATE_SLO_H
#define POSTDATE_SQL_OPERATE_SLO_H

#include "core/base/err.h"
#include "sql/connection/pg.h"
#include <stdbool.h>
#include <stdint.h>

struct slo_count {
    int64_t delivered;
    int64_t late;        /* of these, more than the objective after their due time */
    int64_t again;       /* of these, after a retry or a recovery */
    int64_t again_late;  /* of those, more than the objective after their due time … */
    int64_t again_later; /* … and after the time of their last attempt */
    int64_t peak;        /* for slo_add: deliveries a second */
};

/* What is promised. */
struct slo_objective {
    int64_t late_ms, window_ms;
    double target; /* the part of all deliveries, 0 to 1 */
};

/* The windows of burn rates; the last one is the objective's own. */
enum slo_window { SLO_5M, SLO_30M, SLO_1H, SLO_6H, SLO_1D, SLO_3D, SLO_ALL, SLO_WINDOWS };

struct slo_report {
    struct slo_objective objective;
    struct slo_count in[SLO_WINDOWS];
    int64_t since_ms; /* of the first count; -1: there is none */
    int64_t now_ms;
};

/* Adds to this session's minute. */
int slo_add(struct pg *c, const struct slo_count *n, struct err *e);
int slo_read(struct pg *c, const struct slo_objective *o, struct slo_report *out, struct err *e);
/* Minutes to hours, and what is older than the window is forgotten. */
int slo_fold(struct pg *c, int64_t window_ms, struct err *e);

static inline const char *slo_window_name(enum slo_window w)
{
    static const char *const names[SLO_WINDOWS] = {"5m", "30m", "1h", "6h", "1d", "3d", "window"};
    return names[w];
}

/* Of all that was delivered, what was within the objective; 1 where nothing was. */
static inline double slo_share(const struct slo_count *n)
{
    return n->delivered > 0 ? 1 - (double)n->late / (double)n->delivered : 1;
}

/* How many times as fast as the objective allows its budget was used; 1: at the end of the window there is
 * none left. */
static inline double slo_burn(const struct slo_report *r, enum slo_window w)
{
    return (1 - slo_share(&r->in[w])) / (1 - r->objective.target);
}

/* What is left of the window's budget, 1 to 0, and below when it is spent. */
static inline double slo_budget_left(const struct slo_report *r)
{
    return 1 - slo_burn(r, SLO_ALL);
}

/* From how many deliveries on the budget is judged: fewer, and a single late one would spend all of it. */
static inline int64_t slo_least(const struct slo_report *r)
{
    return (int64_t)(1 / (1 - r->objective.target) + 0.5);
}
/* Is the promise broken, as far as so few deliveries can tell? */
static inline bool slo_is_broken(const struct slo_report *r)
{
    return r->in[SLO_ALL].delivered >= slo_least(r) && slo_budget_left(r) < 0;
}

#endif
