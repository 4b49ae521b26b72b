/* The parts of storing a batch, for sql/pipeline/store*.c only. */
#ifndef POSTDATE_SQL_PIPELINE_STORE_INTERNAL_H
#define POSTDATE_SQL_PIPELINE_STORE_INTERNAL_H

#include "sql/connection/pg_internal.h"
#include "sql/pipeline/store.h"

/* How long storing waits for a table that somebody has locked (store_redelivery_seen.sql has it, too). Then
 * the messages that are due on such a day wait, and the others are stored. */
#define ACCEPT_LOCK_TIMEOUT "100ms"

/* Marks items whose message is stored already STORE_DUPLICATE, if they are redelivered or may be. Inside the
 * transaction, before anything else: what others store is waited for. */
int accept_dedupe(struct pg *c, struct store_session *s, struct store_item *items, size_t count,
                  struct err *e);

/* Decides every item with a key (accepted, kept, conflict, waits) and books its key. Inside the transaction.
 */
int accept_keys(struct pg *c, const struct store_options *o, struct store_item *items, size_t count,
                struct err *e);

/* Marks what RabbitMQ is to wait for, and notes the hand-over that is under way then. h may be NULL. Inside
 * the transaction, which began at now_ms, before it is stored. In handing.c. */
int note_handing(struct pg *c, struct store_handover *h, struct store_item *items, size_t count,
                 int64_t now_ms, struct err *e);

#endif
