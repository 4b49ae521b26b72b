#include "gateway/daemon/receipt_mark.h"

#include "amqp/topology.h"
#include "core/buf.h"
#include "core/clock.h"
#include "core/random.h"
#include "core/wire.h"
#include <inttypes.h>
#include <stdio.h>

#define PING_MS 1000 /* or a quarter of the grace, if that is shorter, but … */
#define PING_LEAST_MS 100
#define TURN_MS 3000 /* without a ping or a receipt for so long, it is another one's turn */
#define LAG_REMEMBERED_MS 10000
#define START_MS 10000 /* or the grace, if that is shorter: without a mark */
#define SENT "sent"    /* header of a ping: when, in this gateway's monotonic ms */

void receipt_mark_init(struct receipt_mark *m, struct gateway *g)
{
    *m = (struct receipt_mark){.gateway = g, .least_due_ms = INT64_MAX};
    snprintf(m->name, sizeof m->name, "ping-%08" PRIx32 "%08" PRIx32, random_u32(), random_u32());
}

void receipt_mark_connected(struct receipt_mark *m)
{
    m->connected_ms = clock_monotonic_ms();
    m->pinged_ms = m->heard_ms = m->read_ms = 0;
    m->least_due_ms = INT64_MAX;
}

static int send_ping(const struct receipt_mark *m, struct broker *b, struct err *e)
{
    struct buf properties, headers;
    buf_init(&properties, 256);
    buf_init(&headers, 256);
    wire_put_int64(&headers, bytes_of_str(SENT), m->pinged_ms);
    wire_properties_write(&(struct wire_properties){.flags = WIRE_HEADERS | WIRE_DELIVERY_MODE | WIRE_TYPE,
                                                    .headers = buf_bytes(&headers),
                                                    .delivery_mode = 1,
                                                    .type = bytes_of_str(m->name)},
                          &properties);
    int rc = headers.failed || properties.failed
                 ? err_set(e, ERR_BUG, "out of memory")
                 : broker_publish(b, bytes_of_str(""), bytes_of_str(TOPOLOGY_RECEIPT_QUEUE),
                                  buf_bytes(&properties), bytes_of_str(""), false, NULL, e);
    buf_free(&headers);
    buf_free(&properties);
    return rc == 0 ? broker_flush(b, e) : -1;
}

static int64_t ping_every_ms(const struct receipt_mark *m)
{
    int64_t quarter_ms = m->gateway->config->handover.grace_ms / 4;
    return quarter_ms > PING_MS ? PING_MS : quarter_ms < PING_LEAST_MS ? PING_LEAST_MS : quarter_ms;
}

int receipt_mark_ping(struct receipt_mark *m, struct broker *b, struct err *e)
{
    if (m->pinged_ms && clock_monotonic_ms() - m->pinged_ms < ping_every_ms(m))
        return 0;
    m->pinged_ms = clock_monotonic_ms();
    return send_ping(m, b, e);
}

static void heard(struct receipt_mark *m)
{
    int64_t now_ms = clock_monotonic_ms();
    if (m->heard_ms == 0 || now_ms - m->heard_ms >= TURN_MS)
        m->turn_ms = now_ms;
    m->heard_ms = now_ms;
}

void receipt_mark_receipt(struct receipt_mark *m, struct message_id id)
{
    heard(m);
    if (message_id_due_ms(id) < m->least_due_ms)
        m->least_due_ms = message_id_due_ms(id);
}

void receipt_mark_other(struct receipt_mark *m, struct bytes properties)
{
    struct wire_properties p;
    struct wire_field sent;
    int64_t sent_ms;
    if (wire_properties_read(properties, &p, NULL) != 0 || !bytes_equal_str(p.type, m->name) ||
        !wire_find(p.headers, SENT, &sent) || !wire_field_int(&sent, &sent_ms))
        return;
    heard(m);
    if (sent_ms > m->read_ms && sent_ms <= m->pinged_ms)
        m->read_ms = sent_ms;
}

static void note_lag(struct receipt_mark *m, int64_t now_ms)
{
    if (clock_monotonic_ms() - m->lag_seen_ms >= LAG_REMEMBERED_MS)
        m->lag_ms = 0;
    if (now_ms - m->least_due_ms >= m->lag_ms) { /* never, when none came */
        m->lag_ms = now_ms - m->least_due_ms;
        m->lag_seen_ms = clock_monotonic_ms();
    }
    m->least_due_ms = INT64_MAX;
}

void receipt_mark_move(struct receipt_mark *m, const struct message_id *locked, size_t count)
{
    struct gateway *g = m->gateway;
    int64_t now_ms, grace_ms = g->config->handover.grace_ms;
    int64_t start_ms = grace_ms < START_MS ? grace_ms : START_MS;
    if (!gateway_now_ms(g, &now_ms))
        return;
    note_lag(m, now_ms);
    if (m->read_ms == 0 || m->read_ms - m->connected_ms < start_ms || m->read_ms - m->turn_ms < start_ms)
        return;
    int64_t mark_ms = now_ms - (clock_monotonic_ms() - m->read_ms) - m->lag_ms;
    for (size_t i = 0; i < count; i++)
        if (message_id_due_ms(locked[i]) < mark_ms)
            mark_ms = message_id_due_ms(locked[i]);
    atomic_store(&g->receipts_mark_ms, mark_ms);
    atomic_store(&g->receipts_marked_ms, m->read_ms);
}
