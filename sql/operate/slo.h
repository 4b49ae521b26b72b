/* The objective for lateness, and how many deliveries met it. Counts are stored per minute, later per hour
 * (sql/schema/001_84_slo.sql). */
#ifndef POSTDATE_SQL_OPERATE_SLO_H
#define POSTDATE_SQL_OPERATE_SLO_H

#include "core/base/err.h"
#include "sql/connection/pg.h"
#include <stdbool.h>
#include <stdint.h>

struct slo_count {
    int64_t delivered;
    int64_t late; /* of these, later than the objective */
    /* of these, after a retry or a recovery (a claim of a dead gateway's message, or a rescue) */
    int64_t again;
    int64_t again_late;  /* of those, later than the objective after the due time … */
    int64_t again_later; /* … and after the time of their last attempt */
    int64_t peak;        /* for slo_add: deliveries per second */
};

/* The objective. */
struct slo_objective {
    int64_t late_ms, window_ms;
    double target; /* the share of all deliveries, 0 to 1 */
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
/* Merges counts of minutes into hours, and deletes those older than the window. */
int slo_fold(struct pg *c, int64_t window_ms, struct err *e);

static inline const char *slo_window_name(enum slo_window w)
{
    static const char *const names[SLO_WINDOWS] = {"5m", "30m", "1h", "6h", "1d", "3d", "window"};
    return names[w];
}

/* The share of deliveries that met the objective; 1 without deliveries. */
static inline double slo_share(const struct slo_count *n)
{
    return n->delivered > 0 ? 1 - (double)n->late / (double)n->delivered : 1;
}

/* The burn rate: how fast the budget was used, as a multiple of the allowed rate; 1: exactly used up at the
 * end of the window. */
static inline double slo_burn(const struct slo_report *r, enum slo_window w)
{
    return (1 - slo_share(&r->in[w])) / (1 - r->objective.target);
}

/* The remaining share of the window's budget, 1 to 0; negative: overspent. */
static inline double slo_budget_left(const struct slo_report *r)
{
    return 1 - slo_burn(r, SLO_ALL);
}

/* The number of deliveries from which on the budget is evaluated. With fewer, one late delivery would use all
 * of it. */
static inline int64_t slo_least(const struct slo_report *r)
{
    return (int64_t)(1 / (1 - r->objective.target) + 0.5);
}
/* Is the objective missed, with enough deliveries to evaluate it? */
static inline bool slo_is_broken(const struct slo_report *r)
{
    return r->in[SLO_ALL].delivered >= slo_least(r) && slo_budget_left(r) < 0;
}

#endif
