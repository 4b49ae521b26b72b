/* The two sources of options, between gateway/config/config.c and gateway/config/config_load.c. */
#ifndef POSTDATE_GATEWAY_CONFIG_CONFIG_LOAD_H
#define POSTDATE_GATEWAY_CONFIG_CONFIG_LOAD_H

#include "gateway/config/config_report.h"

void config_load_file(struct config_loader *l, const char *path, bool must_exist);
void config_load_environment(struct config_loader *l);

#endif
