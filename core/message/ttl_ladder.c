#include "core/message/ttl_ladder.h"

#include "core/base/names.h"
#include <stdio.h>

static const char *const exchanges[TTL_LADDER_LEVELS_MAX] = {
    broker_names.ladder_0, broker_names.ladder_1, broker_names.ladder_2, broker_names.ladder_3,
    broker_names.ladder_4, broker_names.ladder_5, broker_names.ladder_6,
};
static const char *const headers[TTL_LADDER_LEVELS_MAX] = {
    "x-postdate-l0", "x-postdate-l1", "x-postdate-l2", "x-postdate-l3",
    "x-postdate-l4", "x-postdate-l5", "x-postdate-l6",
};

static int64_t radix_power(int exponent)
{
    int64_t p = 1;
    while (exponent-- > 0)
        p *= TTL_LADDER_RADIX;
    return p;
}

/* Without the overflow of (delay + grain - 1) / grain. */
static int64_t count_grains(int64_t delay_ms)
{
    if (delay_ms <= 0)
        return 1;
    return delay_ms / TTL_LADDER_GRAIN_MS + (delay_ms % TTL_LADDER_GRAIN_MS != 0);
}

int ttl_ladder_levels(int64_t window_ms)
{
    int digits[TTL_LADDER_LEVELS_MAX];
    return ttl_ladder_digits(window_ms, digits);
}

int64_t ttl_ladder_shorten(int64_t delay_ms, int64_t slack_ms)
{
    const int64_t rung_ms = TTL_LADDER_RADIX * TTL_LADDER_GRAIN_MS, less_ms = delay_ms % rung_ms;
    if (slack_ms <= 0 || less_ms > slack_ms)
        return delay_ms;
    return delay_ms > less_ms ? delay_ms - less_ms : 0;
}

int ttl_ladder_digits(int64_t delay_ms, int digits[TTL_LADDER_LEVELS_MAX])
{
    int64_t rest = count_grains(delay_ms);
    int used = 0;

    for (int level = 0; level < TTL_LADDER_LEVELS_MAX; level++) {
        digits[level] = (int)(rest % TTL_LADDER_RADIX);
        rest /= TTL_LADDER_RADIX;
        if (digits[level] != 0)
            used = level + 1;
    }
    return rest == 0 ? used : -1;
}

int64_t ttl_ladder_ttl_ms(int level, int digit)
{
    return digit * radix_power(level) * TTL_LADDER_GRAIN_MS;
}

const char *ttl_ladder_exchange(int level)
{
    return exchanges[level];
}

const char *ttl_ladder_header(int level)
{
    return headers[level];
}

const char *ttl_ladder_queue(int level, int digit, char out[TTL_LADDER_NAME_SIZE])
{
    snprintf(out, TTL_LADDER_NAME_SIZE, "%s.d%d", exchanges[level], digit);
    return out;
}

bool ttl_ladder_owns_queue(struct bytes name)
{
    return bytes_start_with_str(name, broker_names.ladder);
}
