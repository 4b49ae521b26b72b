/* How much is due when, as it was counted last (sql/schema/001_83_forecast.sql); no message is read. */
#ifndef POSTDATE_SQL_OPERATE_FORECAST_H
#define POSTDATE_SQL_OPERATE_FORECAST_H

#include "core/base/arena.h"
#include "sql/operate/operate.h"

#define FORECAST_BUCKETS_MAX 1500
#define FORECAST_EXCHANGES_MAX 20 /* that are named; those with the most */
#define FORECAST_RATE_LEAST 1000  /* deliveries a second that any gateway makes, while more were not seen */
#define FORECAST_MINUTES_MS (3 * INT64_C(86400000)) /* the longest time that is counted by minutes … */
#define FORECAST_HOURS_MS (180 * INT64_C(86400000)) /* … and by hours */

/* step_ms: whole minutes below an hour, whole hours below a day, else whole days; from_ms a multiple of the
 * minute, hour or day. forecast_check. */
/* A rate as it might be, of exchanges with this name ('*' matches any run of characters). */
struct forecast_what_if {
    struct bytes exchange;
    double per_second; /* 0: paused */
};

#define FORECAST_WHAT_IF_MAX 20

struct forecast_request {
    int64_t from_ms, until_ms, step_ms;
    struct forecast_what_if what_if[FORECAST_WHAT_IF_MAX]; /* instead of the rates that there are */
    size_t what_if_count;
    const struct operate_scope *scope; /* NULL: all exchanges */
    struct bytes exchange;             /* data NULL: all */
};

struct forecast_bucket {
    int64_t at_ms, count;
    int64_t by_exchange[FORECAST_EXCHANGES_MAX]; /* as in the report; the rest is count less these */
    int64_t drain_ms;  /* 0: no burst; FORECAST_NEVER: its rate is paused; else how long after its beginning
                          all of it is delivered. Up to FORECAST_MINUTES_MS in all it is found by minutes, and
                          with rates */
    struct bytes rate; /* of a burst: the exchanges of the rate that takes longest; data NULL: none does */
};
#define FORECAST_NEVER INT64_MAX

struct forecast_report {
    struct forecast_request request;
    size_t bucket_count, exchange_count;
    struct forecast_bucket *buckets; /* in order, those that have any */
    struct bytes exchanges[FORECAST_EXCHANGES_MAX];
    int64_t total, rate_per_s;
    bool rate_is_measured;          /* else FORECAST_RATE_LEAST */
    int64_t as_of_ms, corrected_ms; /* when what is due soon, and all of it, was counted; -1: never */
    int64_t now_ms;
};

/* Adds "orders=500/s", or several with commas between them, to q->what_if; names are views into text.
 * ERR_REJECT: what is wrong with it. */
int forecast_assume(struct forecast_request *q, struct bytes text, struct err *e);
/* Fills in what is 0 (from: now, until: a day later, step: what makes at most 300 buckets), rounds from and
 * until outwards. ERR_REJECT: what is not possible, and what is allowed. */
int forecast_check(struct forecast_request *q, int64_t now_ms, struct err *e);
/* In the arena. */
int forecast_read(struct pg *c, const struct forecast_request *q, struct arena *a,
                  struct forecast_report *out, struct err *e);

/* How much is due within so many seconds. */
#define FORECAST_WITHIN 4
extern const int64_t forecast_within_s[FORECAST_WITHIN];
int forecast_within(struct pg *c, int64_t out[FORECAST_WITHIN], struct err *e);

/* limit_ms: what a call takes at most, but for its last piece. rest(resting, ms) waits so long, or less and
 * says false where it is to end; on the caller's thread. */
struct forecast_pace {
    int64_t limit_ms;
    bool (*rest)(void *resting, int64_t ms);
    void *resting;
};

/* Counts what waits, some ms at a time, and rests three times as long: it is not to be felt. */
int forecast_count(struct pg *c, const struct forecast_pace *pace, struct err *e);

#endif
