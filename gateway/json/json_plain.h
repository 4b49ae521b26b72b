/* What most messages of a batch are: an object of a few texts without escapes, and whole numbers. Read in one
 * pass, with neither a tree nor a table of names. What is any other is for json_document_load, which also
 * says what is wrong with it. Pure, but for memory. */
#ifndef POSTDATE_GATEWAY_JSON_JSON_PLAIN_H
#define POSTDATE_GATEWAY_JSON_JSON_PLAIN_H

#include "core/base/bytes.h"
#include <jansson.h>
#include <stdbool.h>

/* values[i]: the value of the member with names[i], to be freed; NULL: there is none. False: something in the
 * object, or around it, is not plain, a name is unknown or comes twice, or memory was out; nothing is to be
 * freed then. */
bool json_plain_read(struct bytes text, const char *const names[], size_t count, json_t *values[]);
void json_plain_free(size_t count, json_t *values[]);

#endif
