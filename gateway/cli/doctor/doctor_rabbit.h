/* What the broker's checks share. */
#ifndef POSTDATE_GATEWAY_CLI_DOCTOR_DOCTOR_RABBIT_H
#define POSTDATE_GATEWAY_CLI_DOCTOR_DOCTOR_RABBIT_H

#include "amqp/topology/topology.h"
#include "gateway/cli/doctor/doctor.h"

/* How to connect as the gateway does; points into the configuration. */
struct broker_options doctor_broker_options(const struct doctor *d);
/* The broker's clock was broker_ms at some moment between from_ms and to_ms of this machine's: compares it
 * with the database's, which is known. */
void doctor_report_broker_clock(struct doctor *d, int64_t broker_ms, int64_t from_ms, int64_t to_ms);

#endif
