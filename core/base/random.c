#include "core/base/random.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

void random_fill(void *out, size_t len)
{
    uint8_t *p = out;
    while (len > 0) {
        ssize_t n = getrandom(p, len, 0);
        if (n < 0) {
            if (errno == EINTR)
                continue;
            abort();
        }
        p += n;
        len -= (size_t)n;
    }
}

uint32_t random_u32(void)
{
    uint32_t v;
    random_fill(&v, sizeof(v));
    return v;
}

int64_t backoff_delay_ms(unsigned attempt, int64_t first_ms, int64_t max_ms, uint32_t random)
{
    if (first_ms <= 0)
        return 0;
    if (max_ms < 1)
        max_ms = 1;
    int64_t whole = first_ms < max_ms ? first_ms : max_ms;
    for (unsigned i = 1; i < attempt && whole < max_ms; i++)
        whole = whole > max_ms / 2 ? max_ms : whole * 2;

    int64_t half = whole - whole / 2;
    uint64_t steps = (uint64_t)(whole - half) + 1;
    uint64_t jitter;
    if (steps <= UINT32_MAX)
        jitter = steps * random >> 32;
    else
        jitter = steps / ((uint64_t)UINT32_MAX + 1) * random;
    return half + (int64_t)jitter;
}
