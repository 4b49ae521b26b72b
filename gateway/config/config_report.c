/* What a source of options has to say: to the caller's report, and the first mistake to its error. */
#include "gateway/config/config_report.h"

#include "core/base/bytes.h"
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define WORD_MAX 32

static void add_mistake(struct config_loader *l, enum err_kind kind, char *text)
{
    bytes_clean_text(text); /* files hold anything, and this goes to terminals and logs */
    if (l->mistakes++ == 0)
        err_set(l->e, kind, "%s", text);
    if (l->report != NULL && l->report->mistake != NULL)
        l->report->mistake(l->report->ctx, kind, text);
}

void config_mistake(struct config_loader *l, const char *where, int line, const char *fmt, ...)
{
    char what[500], text[640];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    if (line > 0)
        snprintf(text, sizeof text, "%s:%d: %s", where, line, what);
    else
        snprintf(text, sizeof text, "%s: %s", where, what);
    add_mistake(l, ERR_CONFIG, text);
}

void config_unread(struct config_loader *l, const char *where, const char *what, int why, const char *limit)
{
    char text[640];
    snprintf(text, sizeof text, "%.200s: cannot read %.200s: %s%s", where, what,
             why == EFBIG    ? limit
             : why == EINVAL ? "it is not a text file (it has a NUL byte)"
                             : strerror(why),
             why == EACCES ? "; run this as root, or with sudo -u postdate" : "");
    add_mistake(l, why == EACCES ? ERR_PERMISSION : ERR_CONFIG, text);
}

void config_warn(struct config_loader *l, const char *text)
{
    if (l->report != NULL && l->report->warning != NULL)
        l->report->warning(l->report->ctx, text);
}

void config_warn_exposed(struct config_loader *l, const char *path, const char *remedy)
{
    char warning[600];
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || (st.st_mode & S_IROTH) == 0)
        return;
    snprintf(warning, sizeof warning,
             "%.400s holds a password, and every user of this machine may read it: %s", path, remedy);
    if (l->report && l->report->exposed)
        l->report->exposed(l->report->ctx, warning);
    else
        config_warn(l, warning);
}

/* How many letters to change, add or take away. */
static int distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int row[WORD_MAX + 1];
    for (size_t j = 0; j <= b_len; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= a_len; i++) {
        int corner = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= b_len; j++) {
            int above = row[j], replace = corner + (tolower((unsigned char)a[i - 1]) != b[j - 1]);
            int shift = (above < row[j - 1] ? above : row[j - 1]) + 1;
            row[j] = replace < shift ? replace : shift;
            corner = above;
        }
    }
    return row[b_len];
}

bool config_nearest(const char *word, const char *words, char *out, size_t size)
{
    size_t len = strlen(word);
    int best = len > 8 ? 4 : len > 4 ? 3 : 2; /* fewer changes than this */
    bool found = false;
    for (const char *w = words + strspn(words, " "); *w != '\0'; w += strspn(w, " ")) {
        size_t n = strcspn(w, " ");
        int d = len <= WORD_MAX && n <= WORD_MAX ? distance(word, len, w, n) : WORD_MAX;
        if (d < best) {
            best = d;
            found = true;
            snprintf(out, size, "%.*s", (int)n, w);
        }
        w += n;
    }
    return found;
}
