/* Detects that jansson ran out of memory. Its functions return NULL then, but it drops a value that could not
 * be set in an object, reports a text as malformed for which it had no memory, and loses characters of a
 * string whose buffer could not grow. So its allocations are made here: within a scope, all allocations after
 * a failed one fail, too, and the end of the scope reports it.
 *
 * Scopes belong to a thread and may be nested. Outside of a scope, failures are not recorded. */
#ifndef POSTDATE_GATEWAY_JSON_JSON_MEMORY_H
#define POSTDATE_GATEWAY_JSON_JSON_MEMORY_H

#include "core/base/bytes.h"
#include <jansson.h>
#include <stdbool.h>

/* Call it once at the start of the program, before any other thread and any JSON. */
void json_memory_open(void);

struct json_memory_scope {
    bool in_scope, refused; /* of the enclosing scope */
};

struct json_memory_scope json_memory_begin(void);
/* Records a failed allocation outside of jansson. */
void json_memory_refuse(void);
/* Has any allocation of this scope failed so far? */
bool json_memory_refused(void);
/* Ends the scope. True: an allocation failed since json_memory_begin, and values made since may be
 * incomplete. */
bool json_memory_end(struct json_memory_scope outer);

/* json_loadb with duplicates rejected, NUL allowed, and further flags. NULL: *no_memory, or `why` is set. The
 * caller owns the reference. */
json_t *json_memory_load(struct bytes text, size_t flags, bool *no_memory, json_error_t *why);

#endif
