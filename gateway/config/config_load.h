/* The two sources of options, between gateway/config/config.c and gateway/config/config_load.c. */
#ifndef POSTDATE_GATEWAY_CONFIG_CONFIG_LOAD_H
#define POSTDATE_GATEWAY_CONFIG_CONFIG_LOAD_H

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

void config_load_file(struct config_loader *l, const char *path, bool must_exist);
void config_load_environment(struct config_loader *l);

#endif
