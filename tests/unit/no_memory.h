/* Every allocation of a piece of code fails once, and from each one on for good. The program is linked with
 * -Wl,--wrap for malloc, calloc, realloc, strdup and free; each test program includes this once. */
#ifndef POSTDATE_TESTS_NO_MEMORY_H
#define POSTDATE_TESTS_NO_MEMORY_H

#include "core/base/buf.h"
#include "core/base/err.h"
#include "tests/unit/unit.h"
#include <stdlib.h>
#include <string.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *p, size_t size);
char *__real_strdup(const char *s);
void __real_free(void *p);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *p, size_t size);
char *__wrap_strdup(const char *s);
void __wrap_free(void *p);

static struct {
    bool on, forever;
    long at, count; /* the at-th allocation fails; how many were asked for */
    long living;    /* blocks that were not freed */
} no_memory;

static bool no_memory_now(void)
{
    if (!no_memory.on)
        return false;
    no_memory.count++;
    return no_memory.forever ? no_memory.count >= no_memory.at : no_memory.count == no_memory.at;
}

static void *no_memory_born(void *p)
{
    no_memory.living += p != NULL;
    return p;
}

void *__wrap_malloc(size_t size)
{
    return no_memory_now() ? NULL : no_memory_born(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
    return no_memory_now() ? NULL : no_memory_born(__real_calloc(count, size));
}

void *__wrap_realloc(void *p, size_t size)
{
    if (no_memory_now())
        return NULL;
    return p ? __real_realloc(p, size) : no_memory_born(__real_realloc(p, size));
}

char *__wrap_strdup(const char *s)
{
    return no_memory_now() ? NULL : no_memory_born(__real_strdup(s));
}

void __wrap_free(void *p)
{
    no_memory.living -= p != NULL;
    __real_free(p);
}

/* What a piece of code made, in memory that is there already. */
struct no_memory_result {
    uint8_t data[65536];
    size_t len;
};

static inline void no_memory_note(struct no_memory_result *r, struct bytes v)
{
    assert_true(v.len + 4 <= sizeof r->data - r->len);
    uint32_t len = (uint32_t)v.len;
    memcpy(r->data + r->len, &len, sizeof len);
    if (v.data)
        memcpy(r->data + r->len + sizeof len, v.data, v.len);
    r->len += sizeof len + v.len;
}

/* Runs it with memory enough, then with each allocation failing, until none is reached. Each time it must
 * free what it took, and either fail with an error that blames nobody's input, or make the same as ever.
 * run: 0 or -1 with e set. */
static inline void no_memory_sweep(int (*run)(struct no_memory_result *out, struct err *e))
{
    static struct no_memory_result wanted, got;
    struct err e = {0};
    long before = no_memory.living;
    wanted.len = 0;
    if (run(&wanted, &e) != 0)
        fail_msg("with enough memory: %s", e.text);
    assert_int_equal(no_memory.living, before);
    for (int forever = 0; forever <= 1; forever++) {
        for (long at = 1;; at++) {
            err_clear(&e);
            got.len = 0;
            no_memory.forever = forever;
            no_memory.at = at;
            no_memory.count = 0;
            no_memory.on = true;
            int rc = run(&got, &e);
            no_memory.on = false;
            if (no_memory.living != before)
                fail_msg("allocation %ld failed: %ld blocks leaked", at, no_memory.living - before);
            if (rc == 0 && (got.len != wanted.len || memcmp(got.data, wanted.data, got.len) != 0))
                fail_msg("allocation %ld failed: it claims success with another result", at);
            if (rc != 0 && e.kind != ERR_BUG && e.kind != ERR_BUSY)
                fail_msg("allocation %ld failed: error %d, \"%s\"", at, (int)e.kind, e.text);
            if (no_memory.count < at) {
                assert_int_equal(rc, 0);
                assert_true(at > 1);
                break;
            }
        }
    }
}

#endif
