#include "gateway/daemon/unrouted.h"

#include "core/outgoing.h"
#include "gateway/log.h"
#include "sql/claim.h"
#include <string.h>

#define SAY_MS 60000
/* It begins like that of a returned message: no more suspect than others, so it need not go alone. */
#define WHY                                                                                                  \
    HELD_UNROUTABLE                                                                                          \
    ": when RabbitMQ let it go it had just started, or there was no exchange, or no binding to it; "         \
    "published by the gateway"

void unrouted_heard(struct unrouted *u, struct bytes properties)
{
    struct bytes name = outgoing_exchange(properties);
    u->name_len = name.len < sizeof u->name ? name.len : sizeof u->name;
    if (u->name_len)
        memcpy(u->name, name.data, u->name_len);
    exchange_book_doubt(&u->gateway->exchanges, name);
    atomic_store(&u->gateway->rescued, true); /* bind it again */
}

int unrouted_settle(struct unrouted *u, struct pg *pg, const struct message_id *ids, size_t count,
                    bool *locked, struct err *e)
{
    size_t changed = 0;
    struct settle_doubt q = {.ids = ids, .count = count, .unrouted = true, .why = WHY};
    if (settle_doubt(pg, &q, locked, &changed, e) != 0)
        return -1;
    u->count += changed;
    metrics_add(&u->gateway->metrics, METRIC_UNROUTED, changed);
    wake_ring(&u->gateway->claimer_wake);
    return 0;
}

void unrouted_tell(struct unrouted *u)
{
    int64_t now_ms = clock_monotonic_ms();
    char shown[200];
    if (u->count == 0 || (u->said_ms && now_ms - u->said_ms < SAY_MS))
        return;
    log_warning(
        "RabbitMQ let %zu messages go when it had just started, or when there was no exchange for them, or "
        "no binding to it (the last one for '%s'): the gateway publishes them",
        u->count, bytes_printable(bytes_of(u->name, u->name_len), shown, sizeof shown));
    u->count = 0;
    u->said_ms = now_ms;
}
