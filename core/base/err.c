#include "core/base/err.h"
#include "core/base/bytes.h"
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Truncation may have cut a UTF-8 sequence in the middle; the text is stored in PostgreSQL and AMQP headers,
 * so the broken tail is dropped. */
static void trim_partial_utf8(char *text, size_t size)
{
    size_t len = strlen(text);
    bool cut = len + 1 >= size;
    for (int i = 0; cut && i < 3 && len > 0 && !bytes_is_text(bytes_of(text, len)); i++)
        text[--len] = '\0';
}

/* The arguments may point into e->text, so text is another place. */
static int keep_text(struct err *e, char *text)
{
    trim_partial_utf8(text, sizeof(e->text));
    memcpy(e->text, text, strlen(text) + 1);
    return -1;
}

int err_set(struct err *e, enum err_kind kind, const char *fmt, ...)
{
    if (!e)
        return -1;
    char text[sizeof(e->text)];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    e->kind = kind;
    return keep_text(e, text);
}

int err_wrap(struct err *e, const char *fmt, ...)
{
    if (!e)
        return -1;
    char text[sizeof(e->text)] = "";
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    size_t used = strlen(text);
    int n = snprintf(text + used, sizeof(text) - used, ": %s", e->text);
    return n < 0 ? -1 : keep_text(e, text); /* cut, perhaps */
}

void err_clear(struct err *e)
{
    if (!e)
        return;
    e->kind = ERR_NONE;
    e->text[0] = '\0';
}

bool err_is_transient(const struct err *e)
{
    return e->kind == ERR_AWAY || e->kind == ERR_LIMIT || e->kind == ERR_BUSY;
}

int err_exit_code(const struct err *e)
{
    static const int codes[] = {
        [ERR_NONE] = 0,    [ERR_USAGE] = 64,   [ERR_REJECT] = 65, [ERR_NOT_FOUND] = 66,
        [ERR_AWAY] = 69,   [ERR_LIMIT] = 75,   [ERR_BUSY] = 75,   [ERR_PERMISSION] = 77,
        [ERR_CONFIG] = 78, [ERR_STOPPING] = 1, [ERR_BUG] = 70,
    };
    return codes[e->kind];
}
