/* Errors and warnings while a file is loaded. */
#ifndef POSTDATE_GATEWAY_CONFIG_CONFIG_REPORT_H
#define POSTDATE_GATEWAY_CONFIG_CONFIG_REPORT_H

#include "gateway/config/config.h"

struct config_loader {
    struct config *config;
    const struct config_report *report; /* may be NULL */
    struct err *e;                      /* the first error */
    int mistakes;
};

/* line 0: the text has only `where` */
void config_mistake(struct config_loader *l, const char *where, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* A file that could not be read. why: the errno of ini_file_text; limit: for the error that it is too long.
 */
void config_unread(struct config_loader *l, const char *where, const char *what, int why, const char *limit);
/* Warns if every user of this machine may read the file, which contains a password. */
void config_warn_exposed(struct config_loader *l, const char *path, const char *remedy);
void config_warn(struct config_loader *l, const char *text);

#endif
