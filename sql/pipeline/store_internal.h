/* The parts of storing a batch, for sql/pipeline/store*.c only. */
#ifndef POSTDATE_SQL_PIPELINE_STORE_INTERNAL_H
#define POSTDATE_SQL_PIPELINE_STORE_INTERNAL_H

#include "sql/connection/pg_internal.h"
#include "sql/pipeline/store.h"

/* Marks the messages to hand over at once, and records their handing. h may be NULL. Inside the transaction,
 * which began at now_ms, before the messages are stored. In handing.c. */
int note_handing(struct pg *c, struct store_handover *h, struct store_item *items, size_t count,
                 int64_t now_ms, struct err *e);

#endif
