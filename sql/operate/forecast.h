/* The number of messages due over time, from the latest counts (sql/schema/001_83_forecast.sql); reads no
 * messages. */
#ifndef POSTDATE_SQL_OPERATE_FORECAST_H
#define POSTDATE_SQL_OPERATE_FORECAST_H

#include "core/base/arena.h"
#include "sql/operate/operate.h"

#define FORECAST_BUCKETS_MAX 1500
#define FORECAST_EXCHANGES_MAX 20 /* exchanges that are listed, those with the most messages */
#define FORECAST_RATE_LEAST                                                                                  \
    1000 /* deliveries per second that any gateway reaches, until a higher rate was measured */
#define FORECAST_MINUTES_MS (3 * INT64_C(86400000)) /* the longest time counted by minutes … */
#define FORECAST_HOURS_MS (180 * INT64_C(86400000)) /* … and by hours */

/* step_ms: whole minutes below an hour, whole hours below a day, else whole days; from_ms a multiple of the
 * minute, hour or day. forecast_check. */
/* A hypothetical rate of exchanges with this name ('*' matches any run of characters). */
struct forecast_what_if {
    struct bytes exchange;
    double per_second; /* 0: paused */
};

#define FORECAST_WHAT_IF_MAX 20

struct forecast_request {
    int64_t from_ms, until_ms, step_ms;
    struct forecast_what_if what_if[FORECAST_WHAT_IF_MAX]; /* replace the configured rates */
    size_t what_if_count;
    const struct operate_scope *scope; /* NULL: all exchanges */
    struct bytes exchange;             /* data NULL: all */
};

struct forecast_bucket {
    int64_t at_ms, count;
    int64_t by_exchange[FORECAST_EXCHANGES_MAX]; /* as in the report; the rest is count less these */
    int64_t drain_ms;  /* 0: no burst; FORECAST_NEVER: its rate is paused; else the time from its beginning
                          until all of it is delivered. For forecasts of up to FORECAST_MINUTES_MS computed by
                          minutes and with rates */
    struct bytes rate; /* of a burst: the exchanges of the rate that takes longest; data NULL: none does */
};
#define FORECAST_NEVER INT64_MAX

struct forecast_report {
    struct forecast_request request;
    size_t bucket_count, exchange_count;
    struct forecast_bucket *buckets; /* in order, those that have any */
    struct bytes exchanges[FORECAST_EXCHANGES_MAX];
    int64_t total, rate_per_s;
    bool rate_is_measured; /* else FORECAST_RATE_LEAST */
    int64_t as_of_ms,
        corrected_ms; /* when messages due soon, and all messages, were last counted; -1: never */
    int64_t now_ms;
};

/* Adds "orders=500/s", or several with commas between them, to q->what_if; names are views into text.
 * ERR_REJECT: what is wrong with it. */
int forecast_assume(struct forecast_request *q, struct bytes text, struct err *e);
/* Fills in fields that are 0 (from: now; until: a day later; step: at most 300 buckets), rounds from and
 * until outwards. ERR_REJECT names the invalid value and what is allowed. */
int forecast_check(struct forecast_request *q, int64_t now_ms, struct err *e);
/* In the arena. */
int forecast_read(struct pg *c, const struct forecast_request *q, struct arena *a,
                  struct forecast_report *out, struct err *e);

/* The number of messages due within each of forecast_within_s. */
#define FORECAST_WITHIN 4
extern const int64_t forecast_within_s[FORECAST_WITHIN];
int forecast_within(struct pg *c, int64_t out[FORECAST_WITHIN], struct err *e);

/* limit_ms: the longest time of a call, except for its last piece. rest(resting, ms) sleeps, on the caller's
 * thread; false: end the call. */
struct forecast_pace {
    int64_t limit_ms;
    bool (*rest)(void *resting, int64_t ms);
    void *resting;
};

/* Counts waiting messages, some ms at a time, and rests three times as long, to keep the load low. */
int forecast_count(struct pg *c, const struct forecast_pace *pace, struct err *e);

#endif
