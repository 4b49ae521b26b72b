/* The claimer: claims messages that are due within the lead (claimer.c). */
#ifndef POSTDATE_GATEWAY_DELIVER_CLAIMER_H
#define POSTDATE_GATEWAY_DELIVER_CLAIMER_H

#include "gateway/deliver/rate_look.h"

/* A sweep: one pass over all days. */
struct sweep {
    bool running;
    struct due_range left;     /* still to be checked */
    int64_t floor_ms;          /* of next_at: how far this piece has come */
    int64_t at_ms;             /* monotonic: when the next sweep is due */
    int64_t began_ms, took_ms; /* monotonic: when this one began; and the time that it used */
};

/* PostgreSQL's queue of NOTIFY. */
struct notify_watch {
    int64_t looked_ms; /* monotonic */
    int64_t since_ms;  /* monotonic: more than half full since; 0: it is not */
    bool said;
};

struct claimer {
    struct claim_loop loop; /* the supervisor sets its first members */
    int64_t reached_ms; /* messages due before this were claimed earlier, except late commits and retries */
    int64_t sampled_ms; /* monotonic: the last sample */
    struct sweep sweep;
    bool more;          /* the last look for due rows left some */
    bool late_more;     /* the last look for late rows left some */
    bool passes;        /* the last claim of plain messages had to pass over the first ones */
    int64_t late_ms;    /* monotonic: the last look for late rows */
    bool again_more;    /* the last look found a range that had been put back */
    int64_t again_ms;   /* monotonic: the last look for such a range */
    int64_t claimed_ms; /* monotonic: the last claim of plain messages */
    struct rate_look rates;
    struct notify_watch notify;
};

void *claimer_thread(void *claimer);

#endif
