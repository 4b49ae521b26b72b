#include "core/message/history_point.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *history_point_format(const struct history_point *p, char out[HISTORY_TEXT_SIZE])
{
    snprintf(out, HISTORY_TEXT_SIZE, "%s %" PRId64 " %" PRId64 " %" PRId64, p->lineage, p->number, p->at_ms,
             p->held_until_ms);
    return out;
}

static bool is_uuid(const char *text)
{
    for (int i = 0; i < HISTORY_LINEAGE_SIZE - 1; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? text[i] != '-' : !isxdigit((unsigned char)text[i]))
            return false;
    }
    return true;
}

/* A space, and digits that fit. */
static bool read_number(const char **at, int64_t *out)
{
    char *end;
    if (**at != ' ' || !isdigit((unsigned char)(*at)[1]) || strspn(*at + 1, "0123456789") > 18)
        return false;
    *out = strtoll(*at + 1, &end, 10);
    *at = end;
    return true;
}

bool history_point_read(struct bytes text, struct history_point *out)
{
    char copy[HISTORY_TEXT_SIZE] = "";
    struct history_point p = {0};
    *out = p;
    if (text.data == NULL || text.len >= sizeof copy)
        return false;
    memcpy(copy, text.data, text.len);
    const char *at = copy + HISTORY_LINEAGE_SIZE - 1;
    if (!is_uuid(copy) || !read_number(&at, &p.number) || !read_number(&at, &p.at_ms) ||
        !read_number(&at, &p.held_until_ms) || *at != '\0' || p.number == 0)
        return false;
    memcpy(p.lineage, copy, HISTORY_LINEAGE_SIZE - 1);
    *out = p;
    return true;
}
