#include "gateway/json/json_memory.h"

#include <stdlib.h>

static _Thread_local struct json_memory_scope now;

static void *take_memory(size_t size)
{
    if (now.refused)
        return NULL;
    void *p = malloc(size);
    now.refused = now.in_scope && p == NULL;
    return p;
}

static void give_back(void *p)
{
    free(p);
}

void json_memory_open(void)
{
    json_set_alloc_funcs(take_memory, give_back);
}

struct json_memory_scope json_memory_begin(void)
{
    struct json_memory_scope outer = now;
    now = (struct json_memory_scope){.in_scope = true};
    return outer;
}

void json_memory_refuse(void)
{
    now.refused = now.in_scope;
}

bool json_memory_refused(void)
{
    return now.refused;
}

bool json_memory_end(struct json_memory_scope outer)
{
    bool refused = now.refused;
    now = outer;
    return refused;
}

json_t *json_memory_load(struct bytes text, size_t flags, bool *no_memory, json_error_t *why)
{
    struct json_memory_scope outer = json_memory_begin();
    json_t *value =
        json_loadb((const char *)text.data, text.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | flags, why);
    *no_memory = json_memory_end(outer);
    if (*no_memory) {
        json_decref(value);
        return NULL;
    }
    return value;
}
