/* What RabbitMQ held and a database that went back does not know is stored again, before it is looked up: so
 * it is delivered, counted, tried again and found like any other. */
#ifndef POSTDATE_GATEWAY_RELAY_RELAY_ADOPT_H
#define POSTDATE_GATEWAY_RELAY_RELAY_ADOPT_H

#include "gateway/pipeline/claim_loop.h"
#include "gateway/runtime/log.h"

struct relay_adopting {
    struct log_quota quota;
};

/* Of those questions that are about messages of before the database went back. unknown[i]: the database does
 * not know it, and nobody here has its content: it is asked about again. 0 or -1. The look-up's thread. */
int relay_adopt(struct relay_adopting *a, struct claim_loop *l, const struct relay_question *questions,
                size_t count, bool *unknown, struct err *e);

#endif
