/* Mistakes and warnings of what is being loaded, and what was probably meant. */
#ifndef POSTDATE_GATEWAY_CONFIG_CONFIG_REPORT_H
#define POSTDATE_GATEWAY_CONFIG_CONFIG_REPORT_H

#include "gateway/config/config.h"

struct config_loader {
    struct config *config;
    const struct config_report *report; /* may be NULL */
    struct err *e;                      /* the first mistake */
    int mistakes;
};

/* line 0: where alone is named */
void config_mistake(struct config_loader *l, const char *where, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* A file that could not be read. why: the errno of ini_file_text; limit: said of one that is too long. */
void config_unread(struct config_loader *l, const char *where, const char *what, int why, const char *limit);
/* Warns where every user of this machine may read that file, which holds a password. */
void config_warn_exposed(struct config_loader *l, const char *path, const char *remedy);
void config_warn(struct config_loader *l, const char *text);

#endif
