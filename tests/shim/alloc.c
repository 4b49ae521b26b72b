/* Allocations that fail. Memory comes from glibc under its other names, so nothing has to be looked up in
 * here. */
#include "tests/shim/shim.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

#define CALLER __builtin_return_address(0)

static bool fails(const void *caller)
{
    if (shim_failure_now("malloc", caller, SHIM_NO_SERVER) != SHIM_FAIL)
        return false;
    errno = ENOMEM;
    return true;
}

SHIM_EXPORT void *malloc(size_t size)
{
    return fails(CALLER) ? NULL : __libc_malloc(size);
}

SHIM_EXPORT void *calloc(size_t count, size_t size)
{
    return fails(CALLER) ? NULL : __libc_calloc(count, size);
}

SHIM_EXPORT void *realloc(void *p, size_t size)
{
    return size > 0 && fails(CALLER) ? NULL : __libc_realloc(p, size);
}

SHIM_EXPORT void *reallocarray(void *p, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return bytes > 0 && fails(CALLER) ? NULL : __libc_realloc(p, bytes);
}

SHIM_EXPORT int posix_memalign(void **out, size_t alignment, size_t size)
{
    if (fails(CALLER))
        return ENOMEM;
    void *p = __libc_memalign(alignment, size);
    if (!p)
        return ENOMEM;
    *out = p;
    return 0;
}

SHIM_EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
    return fails(CALLER) ? NULL : __libc_memalign(alignment, size);
}

static char *copy(const char *s, size_t len)
{
    char *p = __libc_malloc(len + 1);
    if (!p)
        return NULL;
    memcpy(p, s, len);
    p[len] = '\0';
    return p;
}

/* glibc's own would ask for the memory in its own name. */
SHIM_EXPORT char *strdup(const char *s)
{
    return fails(CALLER) ? NULL : copy(s, strlen(s));
}

SHIM_EXPORT char *strndup(const char *s, size_t max)
{
    return fails(CALLER) ? NULL : copy(s, strnlen(s, max));
}
