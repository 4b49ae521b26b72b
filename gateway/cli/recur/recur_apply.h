/* `postdate recur apply FILE`: the schedules in the database become those of a file. */
#ifndef POSTDATE_GATEWAY_CLI_RECUR_RECUR_APPLY_H
#define POSTDATE_GATEWAY_CLI_RECUR_RECUR_APPLY_H

#include "gateway/cli/cli.h"

struct recur_apply_options {
    const char *file, *prefix; /* "-": stdin; NULL: all names */
    bool dry_run, json;
};
/* 0 or the exit code. */
int recur_apply_file(struct cli *cli, const struct recur_apply_options *o);

#endif
