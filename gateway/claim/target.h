/* Where claimed messages go: the claimer takes for its target what is due before that target's horizon.
 *
 * The gateway holds the message itself until its millisecond (target_timer; horizon: the lead). That the
 * broker waits is the same loop with the window as horizon: handover_feeder.c, which also asks for room and
 * for a way to the message's exchange first. */
#ifndef POSTDATE_GATEWAY_CLAIM_TARGET_H
#define POSTDATE_GATEWAY_CLAIM_TARGET_H

#include "gateway/runtime/gateway.h"

struct target {
    const char *name;
    int64_t (*horizon_ms)(const struct config *c);      /* claim what is due sooner than now plus this */
    bool (*ready)(struct gateway *g);                   /* false: claiming for it makes no sense now */
    int (*take)(struct gateway *g, struct inflight *h); /* 0: owns h now; -1: out of memory */
};

extern const struct target target_timer;

#endif
