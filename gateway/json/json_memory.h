/* jansson without memory. Its functions return NULL then, but a value that could not be set in an object is
 * dropped without a word, its parser calls a text malformed that it had no memory for, and a string whose
 * buffer could not grow once loses characters. So its memory is asked for here: within a scope, once one
 * request was refused all that follow are, which makes it give up soon, and the end of the scope tells.
 *
 * Scopes belong to a thread and may lie within each other. Outside of one nothing is noted. */
#ifndef POSTDATE_GATEWAY_JSON_JSON_MEMORY_H
#define POSTDATE_GATEWAY_JSON_JSON_MEMORY_H

#include "core/base/bytes.h"
#include <jansson.h>
#include <stdbool.h>

/* Once at the start of the program, before any other thread and any JSON. */
void json_memory_open(void);

struct json_memory_scope {
    bool in_scope, refused; /* of the scope around it */
};

struct json_memory_scope json_memory_begin(void);
/* Something else had no memory for a value. */
void json_memory_refuse(void);
/* Has any request of this scope been refused so far? */
bool json_memory_refused(void);
/* Has any request been refused since json_memory_begin? What was made meanwhile may be incomplete. */
bool json_memory_end(struct json_memory_scope outer);

/* json_loadb with duplicates rejected and NUL allowed, and flags besides. NULL: *no_memory says whether it
 * was that; else `why` is set. The caller has the reference. */
json_t *json_memory_load(struct bytes text, size_t flags, bool *no_memory, json_error_t *why);

#endif
