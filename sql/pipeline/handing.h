/* Hand-overs under way (sql/schema/001_16_handing.sql): which messages a gateway has yet to bring to
 * RabbitMQ. They are `handed` from the commit on that stores or claims them for that. One thread for each
 * connection. */
#ifndef POSTDATE_SQL_PIPELINE_HANDING_H
#define POSTDATE_SQL_PIPELINE_HANDING_H

#include "sql/pipeline/claim.h"

/* Takes what was claimed: first how many, then each row. A row that it cannot keep (false) waits until the
 * instance's claims are released. */
struct handing_taker {
    bool (*begin)(void *ctx, struct message_id handing, size_t count);
    bool (*row)(void *ctx, const struct claimed_row *row);
    void *ctx;
};

/* Claims what may wait in RabbitMQ, and counts as lost there grace_ms after it is due. q: as for claim_due;
 * floor_ms is also the least due time. Commits synchronously. Returns the number of rows, or -1. */
int handing_claim(struct pg *c, const struct claim_request *q, int64_t grace_ms,
                  const struct handing_taker *taker, struct err *e);

/* These are over: RabbitMQ has all of their messages, or the rows say what became of them. Said twice does no
 * harm. -1: ERR_BUSY: somebody has one of them locked. */
int handing_done(struct pg *c, const struct message_id *handings, size_t count, struct err *e);

/* RabbitMQ has nothing left of what waits there (is_gone: 1), because its vhost is another one, say. What it
 * held and is not due within two seconds is `scheduled` again. One gateway at a time: it asks once more when
 * it is alone, and declares what waits before the next one asks. Returns how many messages, or -1: nothing
 * was changed. */
struct handing_loss {
    int (*is_gone)(void *ctx, struct err *e);
    int (*declare)(void *ctx, struct err *e);
    void *ctx;
};
int handing_lost(struct pg *c, const struct handing_loss *loss, struct err *e);

#endif
