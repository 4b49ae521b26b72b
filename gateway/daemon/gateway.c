#include "gateway/daemon/gateway.h"

#include "core/backoff.h"
#include "core/random.h"

bool gateway_stopping(struct gateway *g, enum stop_stage stage)
{
    return atomic_load(&g->stop_stage) >= (int)stage;
}

void gateway_set_up(struct gateway *g, enum up_bit bit)
{
    atomic_fetch_or(&g->up, (int)bit);
}

bool gateway_now_ms(struct gateway *g, int64_t *out_ms)
{
    pthread_mutex_lock(&g->clock_lock);
    bool ready = db_clock_ready(&g->clock);
    if (ready)
        *out_ms = db_clock_now_ns(&g->clock, clock_monotonic_ns()) / 1000000;
    pthread_mutex_unlock(&g->clock_lock);
    return ready;
}

void gateway_settle(struct gateway *g, struct held *h, enum settle_kind outcome)
{
    h->outcome = outcome;
    outcomes_put(&g->outcomes, h);
}

int64_t gateway_retry_ms(const struct gateway *g, int attempts)
{
    return backoff_delay_ms((unsigned)(attempts > 0 ? attempts : 1), g->config->retry.first_ms,
                            g->config->retry.max_ms, random_u32());
}
