/* What the broker's checks share. */
#ifndef POSTDATE_GATEWAY_CLI_DOCTOR_RABBIT_H
#define POSTDATE_GATEWAY_CLI_DOCTOR_RABBIT_H

#include "gateway/cli/doctor.h"

#define REJECTED_QUEUE "postdate.rejected"
#define RECEIPT_QUEUE "postdate.receipts"

/* How to connect as the gateway does; points into the configuration. */
struct broker_options doctor_broker_options(const struct doctor *d);
/* The delivery exchange is one that the gateway declares: not the default one, none of the broker's own. */
bool doctor_owns_delivery(const struct doctor *d);

#endif
