/* Reports errors and warnings of a source of options to the caller's report; the first error also to its
 * struct err. */
#include "gateway/config/config_report.h"

#include "core/base/bytes.h"
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

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
