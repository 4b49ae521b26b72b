#include "sql/pipeline/handing.h"

#include "core/message/envelope.h"
#include "sql/pipeline/settle_internal.h"
#include "sql/pipeline/store_internal.h"
#include "sql_embedded.h"

#define HANDING_COLUMN 17

int handing_claim(struct pg *c, const struct claim_request *q, int64_t grace_ms,
                  const struct handing_taker *taker, struct err *e)
{
    PG_PARAMS(p) = {0};
    claim_params(&p, q);
    pg_add(&p, as_int8(grace_ms));
    PGresult *r = pg_query(c, sql_query_handing_claim, &p, e);
    if (!r)
        return -1;
    int n = PQntuples(r);
    if (n > 0)
        n = taker->begin(taker->ctx, pg_id(r, 0, HANDING_COLUMN), (size_t)n)
                ? claim_rows(r, taker->row, taker->ctx, e)
                : err_set(e, ERR_BUG, "out of memory for claimed messages");
    PQclear(r);
    return n;
}

int handing_done(struct pg *c, const struct message_id *handings, size_t count, struct err *e)
{
    return pg_do(c, sql_query_handing_done, PG_WITH(as_ids(handings, count)), e);
}

/* RabbitMQ is asked and told inside of the transaction, and may be slow. The rows are locked meanwhile: also
 * by a gateway that is stopped there, for no longer than the usual grace. */
static const char ask_rabbitmq[] = "set local idle_in_transaction_session_timeout = '30s'";

static int64_t give_back(struct pg *c, const struct handing_loss *loss, struct err *e)
{
    int gone = pg_do(c, sql_query_handing_lost_lock, NULL, e) == 0 ? loss->is_gone(loss->ctx, e) : -1;
    int64_t n = gone > 0 ? pg_run(c, sql_query_handing_lost, NULL, e) : gone;
    return n < 0 || loss->declare(loss->ctx, e) != 0 ? -1 : n;
}

int handing_lost(struct pg *c, const struct handing_loss *loss, struct err *e)
{
    int64_t n = pg_begin(c, e) == 0 && pg_exec(c, ask_rabbitmq, e) == 0 ? give_back(c, loss, e) : -1;
    if (n >= 0 && pg_commit(c, e) == 0)
        return (int)n;
    pg_rollback(c);
    return -1;
}

/* --- together with storing */

static bool may_wait(const struct store_handover *h, const struct store_item *item, int64_t now_ms)
{
    const struct message *m = &item->message;
    return item->result == STORE_ACCEPTED && m->hold == HOLD_BROKER && m->key.len == 0 &&
           m->deadline_ms == 0 && m->due_ms <= h->until_ms && m->due_ms >= now_ms + h->least_ahead_ms &&
           envelope_holds(m);
}

/* Of those that are marked, what this try stores. */
static bool is_stored_handed(const struct store_item *item)
{
    return item->handed && item->result == STORE_ACCEPTED;
}

/* How many are marked. Marks of an earlier call that may be committed are kept. */
static size_t mark(const struct store_handover *h, struct store_item *items, size_t count, int64_t now_ms)
{
    size_t n = 0;
    for (size_t i = 0; i < count && !h->tried && n < h->most; i++)
        n += items[i].handed = may_wait(h, &items[i], now_ms);
    for (size_t i = 0; i < count && h->tried; i++)
        n += is_stored_handed(&items[i]);
    return n;
}

static int64_t note(struct pg *c, const struct store_handover *h, const struct store_item *items,
                    size_t count, size_t marked, struct err *e)
{
    PG_PARAMS(p) = {{as_id(h->handing), as_int4(h->instance)}};
    struct buf *ids = pg_add_array(&p, PG_OID_UUID, marked);
    for (size_t i = 0; i < count; i++)
        if (is_stored_handed(&items[i]))
            pg_array_id(ids, items[i].message.id);
    return pg_run(c, sql_query_handing_store, &p, e);
}

int note_handing(struct pg *c, struct store_handover *h, struct store_item *items, size_t count,
                 int64_t now_ms, struct err *e)
{
    size_t marked = h ? mark(h, items, count, now_ms) : 0;
    if (marked == 0)
        return 0;
    int64_t noted = note(c, h, items, count, marked, e);
    for (size_t i = 0; i < count && noted == 0; i++)
        items[i].handed = false;
    return noted < 0 ? -1 : 0;
}
