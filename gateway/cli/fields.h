/* Options that become fields of a message object, and files. */
#ifndef POSTDATE_GATEWAY_CLI_FIELDS_H
#define POSTDATE_GATEWAY_CLI_FIELDS_H

#include "core/base/arena.h"
#include "core/base/bytes.h"
#include "gateway/cli/command.h"
#include <jansson.h>

/* The first member of an order whose options make a message object. */
struct cli_fields {
    json_t *object, *headers, *properties; /* NULL while empty */
    const char *body, *file;
};
/* Its headers, properties and body. */
extern const struct cli_option cli_content_options[];
/* Puts headers and properties into the object. */
void cli_fields_join(const struct cli_fields *f);
void cli_fields_close(void *order);
/* The object at this place; created if NULL. */
json_t *cli_object_at(json_t **at);
/* Sets the field of the option's name in the object at this place; only once. With `max`: a number from 1. */
cli_take cli_take_field;
/* "NAME=VALUE" of --header or --property. */
cli_take cli_take_pair;
/* Prints why path could not be opened, by errno. Returns the exit code: 66 if it is missing. */
int cli_cannot_read(struct cli *cli, const char *path);
/* The body from path ("-": stdin), at most max bytes, in the arena. 0 or the exit code.
 * limit: the option that sets max, for the error. */
int cli_read_file(struct cli *cli, const char *path, size_t max, const char *limit, struct arena *a,
                  struct bytes *out);
int cli_read_body(struct cli *cli, const char *path, size_t max, struct arena *a, struct bytes *out);

#endif
