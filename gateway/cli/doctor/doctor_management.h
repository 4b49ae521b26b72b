/* RabbitMQ's management API, asked where rabbitmqctl cannot run. */
#ifndef POSTDATE_GATEWAY_CLI_DOCTOR_DOCTOR_MANAGEMENT_H
#define POSTDATE_GATEWAY_CLI_DOCTOR_DOCTOR_MANAGEMENT_H

#include "core/base/base64.h"
#include "core/base/buf.h"
#include "gateway/cli/doctor/doctor_admin.h"

struct doctor_http {
    char host[256], port[8];
    char login[520]; /* "user:password"; the caller clears it */
};

/* doctor_http.c: what GET answers with 200, body pointing into out, which the caller has initialised with a
 * limit. Five seconds at most. ERR_PERMISSION: 401. */
int doctor_http_get(const struct doctor_http *h, const char *path, struct buf *out, struct bytes *body,
                    struct err *e);

/* Reports what it tells, or why it does not. True: it answered. */
bool doctor_management_report(struct doctor *d);

#endif
