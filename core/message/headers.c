#include "core/message/headers.h"
#include "core/message/wire.h"
#include <string.h>

bool headers_is_of_delivery(struct bytes name)
{
    return bytes_equal_str(name, "x-delivery-count") || bytes_equal_str(name, "x-acquired-count") ||
           bytes_start_with_str(name, "x-opt-rabbitmq-");
}

static uint8_t lower(uint8_t c)
{
    return c >= 'A' && c <= 'Z' ? (uint8_t)(c + ('a' - 'A')) : c;
}

static bool begins_with(struct bytes name, const char *start)
{
    size_t n = strlen(start);
    if (name.len < n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (lower(name.data[i]) != (uint8_t)start[i])
            return false;
    return true;
}

bool headers_is_ours(struct bytes name)
{
    return begins_with(name, "x-postdate-") || begins_with(name, "x-opt-delivery-") ||
           (begins_with(name, "x-delay") && name.len == strlen("x-delay"));
}

static bool is_to_lower(struct bytes name)
{
    if (!headers_is_ours(name))
        return false;
    for (size_t i = 0; i < name.len; i++)
        if (lower(name.data[i]) != name.data[i])
            return true;
    return false;
}

int headers_lower(struct bytes headers, struct arena *arena, struct bytes *out, struct err *e)
{
    struct wire_cursor c = wire_table(headers);
    struct wire_field f;
    bool any = false;
    *out = headers;
    while (!any && wire_next(&c, &f) == 1)
        any = is_to_lower(f.name);
    if (!any)
        return 0;
    uint8_t *copy = arena_alloc(arena, headers.len);
    if (!copy)
        return err_set(e, ERR_BUG, "out of memory for %zu bytes of headers", headers.len);
    memcpy(copy, headers.data, headers.len);
    *out = bytes_of(copy, headers.len);
    c = wire_table(headers);
    while (wire_next(&c, &f) == 1)
        for (size_t i = 0; is_to_lower(f.name) && i < f.name.len; i++)
            copy[(size_t)(f.name.data - headers.data) + i] = lower(f.name.data[i]);
    return 0;
}
