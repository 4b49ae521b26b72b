/* Claims what may be handed to the broker; handover_feeder.c says how. */
#ifndef POSTDATE_GATEWAY_HANDOVER_HANDOVER_FEEDER_H
#define POSTDATE_GATEWAY_HANDOVER_HANDOVER_FEEDER_H

#include "gateway/deliver/claim_loop.h"

struct handover_feeder {
    struct claim_loop loop; /* the supervisor sets its first members */
    int64_t counted_ms;     /* monotonic: when it counted what the broker holds */
    int64_t pushed;         /* in this look */
};

void *handover_feeder_thread(void *handover_feeder);

#endif
