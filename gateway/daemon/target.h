/* Where claimed messages go: one loop claims for each target what is due before that target's horizon.
 *
 * There is one target today: the gateway holds the message itself until its millisecond (transport `timer`;
 * horizon: the lead). A broker transport is another one: its horizon is the window and its take() publishes
 * into the broker's own waiting room. */
#ifndef POSTDATE_GATEWAY_TARGET_H
#define POSTDATE_GATEWAY_TARGET_H

#include "gateway/daemon/gateway.h"

struct target {
    const char *name;
    int64_t (*horizon_ms)(const struct config *c);  /* claim what is due sooner than now plus this */
    bool (*ready)(struct gateway *g);               /* false: claiming for it makes no sense now */
    int (*take)(struct gateway *g, struct held *h); /* 0: owns h now; -1: out of memory */
};

extern const struct target target_timer;

#endif
