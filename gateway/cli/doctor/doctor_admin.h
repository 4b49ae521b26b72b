/* What the broker's administration answered, as findings. */
#ifndef POSTDATE_GATEWAY_CLI_DOCTOR_DOCTOR_ADMIN_H
#define POSTDATE_GATEWAY_CLI_DOCTOR_DOCTOR_ADMIN_H

#include "gateway/cli/doctor/doctor.h"

/* answer: the object that the expression in doctor_rabbitmqctl.c makes, or some of it. It was asked between
 * from_ms and to_ms of this machine's clock. */
void doctor_admin_report(struct doctor *d, const json_t *answer, int64_t from_ms, int64_t to_ms);
/* doctor_retry.c: of it the queues that hand over what their consumers refuse, or retry it by themselves. */
void doctor_retry_report(struct doctor *d, const json_t *answer);

/* doctor_type.c: of it the exchanges of the type x-delayed-message. */
void doctor_type_report(struct doctor *d, const json_t *answer);

/* doctor_down.c: of it the queues of Postdate that do not answer. */
void doctor_down_report(struct doctor *d, const json_t *answer);

/* doctor_bindings.c: of it what is bound to the intake and the delivery exchanges, and leads there. */
void doctor_bindings_report(struct doctor *d, const json_t *answer);

/* doctor_management.c: asks the management API where rabbitmqctl cannot run. Reports what it tells, or why it
 * does not. True: it answered. */
bool doctor_management_report(struct doctor *d);

#endif
