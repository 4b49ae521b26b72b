#include "gateway/cli/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>
#include <wctype.h>

/* One character of v at *at, which moves on. Returns its columns; piece gets its bytes, *len of them (8 at
 * most). */
static size_t next_piece(struct bytes v, size_t *at, bool lines, char piece[8], size_t *len)
{
    const char *p = (const char *)v.data + *at;
    mbstate_t fresh = {0};
    wchar_t c;
    size_t n = mbrtowc(&c, p, v.len - *at, &fresh);
    int width = n > 0 && n <= 8 && iswprint((wint_t)c) ? wcwidth(c) : -1;
    if (width < 1 && lines && (*p == '\n' || *p == '\t'))
        width = 1, n = 1;
    /* What has no width of its own (a mark, a change of the writing's direction) would alter its neighbours.
     */
    if (width < 1) {
        char hex[8];
        snprintf(hex, sizeof hex, "\\x%02x", (unsigned)v.data[*at]);
        memcpy(piece, hex, *len = 4);
        ++*at;
        return 4;
    }
    memcpy(piece, p, *len = n);
    *at += n;
    return (size_t)width;
}

static const char *show(struct bytes v, bool lines, size_t columns, char *out, size_t size)
{
    size_t used = 0, wide = 0, cut = 0, at = 0;
    while (at < v.len) {
        char piece[8];
        size_t len, width = next_piece(v, &at, lines, piece, &len);
        if (width > columns - wide || used + len + 3 > size) {
            used = cut;
            memcpy(out + used, "..", 2);
            used += 2;
            break;
        }
        memcpy(out + used, piece, len);
        used += len;
        wide += width;
        if (columns - wide >= 2)
            cut = used; /* the dots fit behind this */
    }
    out[used] = '\0';
    return out;
}

const char *text_show(struct bytes v, size_t columns, char *out, size_t size)
{
    return show(v, false, columns, out, size);
}

const char *text_show_lines(struct bytes v, char *out, size_t size)
{
    return show(v, true, TEXT_ANY_WIDTH, out, size);
}
