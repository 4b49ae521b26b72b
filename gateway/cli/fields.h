/* Options that become fields of a message object, and files. */
#ifndef POSTDATE_GATEWAY_CLI_FIELDS_H
#define POSTDATE_GATEWAY_CLI_FIELDS_H

#include "core/base/arena.h"
#include "core/base/bytes.h"
#include "gateway/cli/command.h"
#include <jansson.h>

/* What an order begins with whose message is made of options. */
struct cli_fields {
    json_t *object, *headers, *properties; /* NULL while empty */
    const char *body, *file;
};
/* Its headers, properties and body. */
extern const struct cli_option cli_content_options[];
/* The headers and properties become part of the object. */
void cli_fields_join(const struct cli_fields *f);
void cli_fields_close(void *order);
/* The object at this place, which is made if there is none. */
json_t *cli_object_at(json_t **at);
/* The option's name is the field's in the object at this place; once. With a `max` it is a number from 1. */
cli_take cli_take_field;
/* "NAME=VALUE" of --header or --property. */
cli_take cli_take_pair;
/* Says why path could not be opened, by errno. The exit code: 66 where it is not there. */
int cli_cannot_read(const char *path);
/* The body from path ("-": stdin), at most max bytes, in the arena. 0 or the exit code. */
/* limit: who says how much, for the error. */
int cli_read_file(const char *path, size_t max, const char *limit, struct arena *a, struct bytes *out);
int cli_read_body(const char *path, size_t max, struct arena *a, struct bytes *out);

#endif
