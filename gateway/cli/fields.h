/* Options that become fields of a message object. Those that return -1 mean: go on; else the exit code, and
 * the mistake is printed. */
#ifndef POSTDATE_GATEWAY_CLI_FIELDS_H
#define POSTDATE_GATEWAY_CLI_FIELDS_H

#include "core/base/arena.h"
#include "core/base/bytes.h"
#include "gateway/cli/cli.h"
#include <jansson.h>

int cli_no_memory(void);
/* field: value; once. */
int cli_set_text(const struct cli *cli, json_t *object, const char *field, const char *option,
                 const char *value);
/* "NAME=VALUE" of --header or --property. */
int cli_set_pair(const struct cli *cli, json_t *object, const char *option, const char *pair);
/* Says why path could not be opened, by errno. The exit code: 66 where it is not there. */
int cli_cannot_read(const char *path);
/* The body from path ("-": stdin), at most max bytes, in the arena. 0 or the exit code. */
/* limit: who says how much, for the error. */
int cli_read_file(const char *path, size_t max, const char *limit, struct arena *a, struct bytes *out);
int cli_read_body(const char *path, size_t max, struct arena *a, struct bytes *out);

#endif
