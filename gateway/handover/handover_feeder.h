/* The handover feeder: claims messages to hand over to RabbitMQ (handover_feeder.c). */
#ifndef POSTDATE_GATEWAY_HANDOVER_HANDOVER_FEEDER_H
#define POSTDATE_GATEWAY_HANDOVER_HANDOVER_FEEDER_H

#include "gateway/deliver/claim_loop.h"

struct handover_feeder {
    struct claim_loop loop; /* the supervisor sets its first members */
    int64_t counted_ms;     /* monotonic: last count of the messages that RabbitMQ holds */
    int64_t pushed;         /* in this look */
};

void *handover_feeder_thread(void *handover_feeder);

#endif
