#include "gateway/runtime/runtime.h"

#include "gateway/runtime/guard.h"
#include "sql/pipeline/store.h"
#include <stdio.h>
#include <unistd.h>

int runtime_open(struct runtime *rt, const struct config *c, struct err *e)
{
    char host[INSTANCE_HOST_SIZE];
    instance_host(host);
    rt->config = c;
    atomic_init(&rt->cell_number, -1);
    snprintf(rt->name, sizeof rt->name, "%s:%d", host, (int)getpid());
    pthread_mutex_init(&rt->clock_lock, NULL);
    pthread_mutex_init(&rt->locked_lock, NULL);
    db_clock_reset(&rt->clock);
    metrics_open(&rt->metrics);
    history_open(&rt->history);
    server_status_open(&rt->postgres, "PostgreSQL");
    server_status_open(&rt->rabbitmq, "RabbitMQ");
    rt->hosts = broker_hosts_new();
    return rt->hosts ? 0 : err_set(e, ERR_BUG, "out of memory");
}

bool runtime_stopping(struct runtime *rt, enum stop_stage stage)
{
    return atomic_load(&rt->stop_stage) >= (int)stage;
}

void runtime_set_up(struct runtime *rt, enum up_bit bit)
{
    atomic_fetch_or(&rt->up, (int)bit);
}

const char *runtime_transport_name(const struct runtime *rt)
{
    const struct transport *t = rt->transport;
    return t ? t->name : "timer";
}

bool runtime_now_ms(struct runtime *rt, int64_t *out_ms)
{
    GUARD(&rt->clock_lock);
    bool ready = db_clock_ready(&rt->clock);
    if (ready)
        *out_ms = db_clock_now_ns(&rt->clock, clock_monotonic_ns()) / 1000000;
    return ready;
}

int64_t runtime_now_us(struct runtime *rt)
{
    GUARD(&rt->clock_lock);
    return db_clock_now_ns(&rt->clock, clock_monotonic_ns()) / 1000;
}

/* How long this machine has been suspended, ever. */
static int64_t suspended_ms(void)
{
    return clock_boottime_ms() - clock_monotonic_ms();
}

int64_t runtime_latest_ms(struct runtime *rt)
{
    GUARD(&rt->clock_lock);
    if (!db_clock_ready(&rt->clock))
        return INT64_MAX;
    return db_clock_now_ns(&rt->clock, clock_monotonic_ns()) / 1000000 + suspended_ms() - rt->suspended_ms;
}

int64_t runtime_ns_until(struct runtime *rt, int64_t at_ms)
{
    GUARD(&rt->clock_lock);
    return db_clock_mono_ns(&rt->clock, at_ms) - clock_monotonic_ns();
}

int64_t runtime_hear_clock(struct runtime *rt, const struct db_clock_answer *a, enum clock_answer kind)
{
    GUARD(&rt->clock_lock);
    if (kind == CLOCK_CAME_ALONG)
        return db_clock_check(&rt->clock, a);
    rt->suspended_ms = suspended_ms();
    return db_clock_sample(&rt->clock, a);
}

void runtime_ring_claimer(struct runtime *rt, const struct store_item *items, size_t count, int64_t now_ms)
{
    for (size_t i = 0; i < count; i++)
        if (items[i].result == STORE_ACCEPTED &&
            items[i].message.due_ms <= now_ms + rt->config->delivery.lead_ms) {
            notifier_notify(&rt->claimer_notifier);
            return;
        }
}
