/* Claims what is due within the lead; claimer.c says how. */
#ifndef POSTDATE_GATEWAY_CLAIM_CLAIMER_H
#define POSTDATE_GATEWAY_CLAIM_CLAIMER_H

#include "gateway/claim/rate_look.h"

/* One passage over all days. */
struct sweep {
    bool running;
    struct due_range left; /* still to be looked at */
    int64_t floor_ms;      /* of next_at: what this piece has passed */
    int64_t at_ms, began_ms,
        took_ms; /* monotonic: the next one; this one's beginning, and what its looks took */
};

/* PostgreSQL's queue of NOTIFY. */
struct notify_watch {
    int64_t looked_ms; /* monotonic */
    int64_t since_ms;  /* monotonic: since when it is more than half full; 0: it is not */
    bool said;
};

struct claimer {
    struct claim_loop loop; /* the supervisor sets its first members */
    int64_t
        reached_ms; /* what is due before this was claimed by earlier looks, late commits and retries apart */
    int64_t sampled_ms; /* monotonic: the last sample */
    struct sweep sweep;
    bool more;          /* the last hot look left something */
    bool late_more;     /* the last look at late ones, too */
    bool passes;        /* the last claim of plain ones could take none of the first */
    int64_t late_ms;    /* monotonic: when it looked for late ones last */
    bool again_more;    /* there was a range that had been put back */
    int64_t again_ms;   /* monotonic: when it looked for such a one last */
    int64_t claimed_ms; /* monotonic: when plain ones were claimed last */
    struct rate_look rates;
    struct notify_watch notify;
};

void *claimer_thread(void *claimer);

#endif
