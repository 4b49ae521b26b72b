/* JSON texts of users, parsed by jansson, with the bytes of what is to be delivered as it was written.
 *
 * jansson keeps no positions, rewrites numbers (19.99 becomes 19.989999999999998) and knows only integers of
 * 64 bits. So the value of "json" in a message object (of the text itself, or of each in its array
 * "messages") is never taken from what jansson made of it. It is cut out of the text and checked by itself;
 * in the parsed document, its place has the integer at which byte of the text it began. */
#ifndef POSTDATE_GATEWAY_JSON_JSON_DOCUMENT_H
#define POSTDATE_GATEWAY_JSON_JSON_DOCUMENT_H

#include "core/base/bytes.h"
#include "core/base/err.h"
#include <jansson.h>
#include <stdbool.h>

#define JSON_DOCUMENT_DEPTH_MAX 64 /* nesting of the whole text */
#define JSON_DOCUMENT_VALUES_MAX                                                                             \
    ((size_t)500 * 1000) /* values in it: parsed, one takes many times its text */

enum json_fault {
    JSON_FAULT_SYNTAX, /* it is not JSON */
    JSON_FAULT_LIMIT,  /* too deep, too many values, or a number too large */
    JSON_FAULT_MEMORY, /* of ours */
};

/* Any JSON value. The caller has the reference. NULL: *fault says why, e (ERR_REJECT, for want of memory
 * ERR_BUG) in words. */
json_t *json_document_load(struct bytes text, enum json_fault *fault, struct err *e);
/* What stood in the text for a "json" of its document; len 0: it is no such place. */
struct bytes json_document_raw(struct bytes text, const json_t *place);

/* The members of an object one by one, as written, from a text that json_document_load accepted (from any
 * other: something, or nothing). json_raw_object gives what json_raw_next moves through; len 0: no object. */
struct bytes json_raw_object(struct bytes text);
bool json_raw_next(struct bytes *rest, struct bytes *name, struct bytes *value);
/* Is this name, in quotes and perhaps with escapes, that word of ASCII letters? */
/* A string in it has a NUL character, for which PostgreSQL's text has no room. Of what json_raw_next gave. */
bool json_raw_holds_nul(struct bytes value);
bool json_raw_is(struct bytes name, const char *word);

#endif
