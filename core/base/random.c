#include "core/base/random.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static void fill_random(void *out, size_t len)
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

void random_take(struct random_pool *p, void *out, size_t len)
{
    if (len > sizeof(p->bytes))
        abort();
    if (len > p->left) {
        fill_random(p->bytes, sizeof(p->bytes));
        p->left = sizeof(p->bytes);
    }
    p->left -= len;
    memcpy(out, p->bytes + p->left, len);
    memset(p->bytes + p->left, 0, len);
}

uint32_t random_u32(void)
{
    uint32_t v;
    fill_random(&v, sizeof(v));
    return v;
}
