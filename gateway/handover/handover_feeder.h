/* Claims what may be handed to the broker; handover_feeder.c says how. */
#ifndef POSTDATE_GATEWAY_HANDOVER_HANDOVER_FEEDER_H
#define POSTDATE_GATEWAY_HANDOVER_HANDOVER_FEEDER_H

#include "gateway/pipeline/claim_loop.h"

struct handover_feeder {
    struct claim_loop loop;   /* the supervisor sets its first members */
    int64_t counted_ms, room; /* how many more the broker may hold; monotonic time of the count */
    int64_t count_pause_ms;   /* until the next one */
    int64_t noted_ms;         /* up to when the database knows that this gateway claims */
};

void *handover_feeder_thread(void *handover_feeder);

#endif
