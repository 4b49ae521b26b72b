/* Handings, the hand-overs in progress (sql/schema/001_16_handing.sql): the messages that a gateway has yet
 * to publish to RabbitMQ's delay. They are `handed` from the commit that stores or claims them for hand-over.
 * One thread for each connection. */
#ifndef POSTDATE_SQL_PIPELINE_HANDING_H
#define POSTDATE_SQL_PIPELINE_HANDING_H

#include "sql/pipeline/claim.h"

/* Receives the claimed messages: first their number, then each row. A row that it cannot keep (false) waits
 * until the instance's claims are released. */
struct handing_taker {
    bool (*begin)(void *ctx, struct message_id handing, size_t count);
    bool (*row)(void *ctx, const struct claimed_row *row);
    void *ctx;
};

/* Claims messages that RabbitMQ may hold; they are treated as lost there grace_ms after they are due. q: as
 * for claim_due; floor_ms is also the least due time. Commits synchronously. Returns the number of rows, or
 * -1. */
int handing_claim(struct pg *c, const struct claim_request *q, int64_t grace_ms,
                  const struct handing_taker *taker, struct err *e);

/* Ends handings: RabbitMQ has confirmed all of their messages, or their rows have other outcomes. May be
 * repeated. -1 with ERR_BUSY: another session has locked one of them. */
int handing_done(struct pg *c, const struct message_id *handings, size_t count, struct err *e);

/* If RabbitMQ has lost all messages that it held (is_gone returns 1), for example because the vhost was
 * recreated: those that are not due within two seconds become `scheduled` again. One gateway at a time: it
 * calls is_gone again when it has the lock, and declares the delay topology before the next gateway checks.
 * Returns how many messages, or -1: nothing was changed. */
struct handing_loss {
    int (*is_gone)(void *ctx, struct err *e);
    int (*declare)(void *ctx, struct err *e);
    void *ctx;
};
int handing_lost(struct pg *c, const struct handing_loss *loss, struct err *e);

#endif
