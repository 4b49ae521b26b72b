#include "gateway/pipeline/claimed_row.h"

#include "core/base/buf.h"
#include "gateway/json/json_message.h"

#define ENCODED_MAX (1u << 20)

void claimed_row_hear_clock(struct lease *lease, struct runtime *rt, const struct claimed_row *row,
                            int64_t *sent_ns)
{
    if (*sent_ns == 0)
        return; /* the first row's is enough */
    const struct db_clock_answer a = {row->clock_us, *sent_ns, clock_monotonic_ns()};
    lease_hear_clock(lease, rt, &a, CLOCK_CAME_ALONG);
    *sent_ns = 0;
}

struct inflight *claimed_row_to_inflight(struct pipeline *p, const struct claimed_row *row, int32_t instance,
                                         bool *refused)
{
    struct claimed_row encoded = *row;
    struct buf properties;
    struct err e = {0};
    *refused = false;
    if (row->properties_json.len == 0)
        return inflight_new(row, instance, &p->claimed);
    buf_init(&properties, ENCODED_MAX);
    int rc = json_message_encode(row->properties_json, &properties, &e);
    *refused = rc != 0 && e.kind == ERR_REJECT; /* else memory is short, which is not the message's fault */
    if (rc == 0)
        encoded.message.properties = buf_bytes(&properties);
    struct inflight *h = rc == 0 || *refused ? inflight_new(&encoded, instance, &p->claimed) : NULL;
    buf_free(&properties);
    if (h && *refused)
        inflight_set_error(h, INFLIGHT_REFUSED, e.text);
    return h;
}

int claimed_row_handover_horizon(const struct config *c, struct pg *pg, int64_t now_ms, int64_t *out_ms,
                                 struct err *e)
{
    int64_t fed_ms, end_ms = now_ms + c->handover.window_ms;
    if (c->handover.feeder == FEEDER_CRON) {
        if (claim_fed_until(pg, &fed_ms, e) != 0)
            return -1;
        end_ms = fed_ms < end_ms ? fed_ms : end_ms;
    }
    *out_ms = end_ms;
    return 0;
}
