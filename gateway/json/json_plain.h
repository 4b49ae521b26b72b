/* A fast parser for the common form of messages in a batch: an object of a few strings without escapes, and
 * whole numbers; one pass, without a tree or a table of names. Other texts are for json_document_load, which
 * also reports errors. Pure, except for memory. */
#ifndef POSTDATE_GATEWAY_JSON_JSON_PLAIN_H
#define POSTDATE_GATEWAY_JSON_JSON_PLAIN_H

#include "core/base/bytes.h"
#include <jansson.h>
#include <stdbool.h>

/* values[i]: the value of the member names[i], to be freed; NULL: none. False: the text has another form, a
 * name is unknown or occurs twice, or out of memory; nothing is to be freed then. */
bool json_plain_read(struct bytes text, const char *const names[], size_t count, json_t *values[]);
void json_plain_free(size_t count, json_t *values[]);

#endif
