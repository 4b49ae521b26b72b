/* JSON texts of users, parsed by jansson, with access to the original bytes of "json" fields.
 *
 * jansson keeps no positions, rewrites numbers (19.99 becomes 19.989999999999998) and knows only integers of
 * 64 bits. So the value of "json" in a message object (the text itself, or an object in its array "messages")
 * is not taken from jansson: it is cut out of the text and checked separately; in the parsed document, it is
 * replaced by an integer, the offset at which it began. */
#ifndef POSTDATE_GATEWAY_JSON_JSON_DOCUMENT_H
#define POSTDATE_GATEWAY_JSON_JSON_DOCUMENT_H

#include "core/base/bytes.h"
#include "core/base/err.h"
#include <jansson.h>
#include <stdbool.h>

#define JSON_DOCUMENT_DEPTH_MAX 64 /* nesting of the whole text */
#define JSON_DOCUMENT_VALUES_MAX                                                                             \
    ((size_t)500 * 1000) /* values in it: a parsed value is many times as large as its text */

enum json_fault {
    JSON_FAULT_SYNTAX, /* it is not JSON */
    JSON_FAULT_LIMIT,  /* too deep, too many values, or a number too large */
    JSON_FAULT_MEMORY, /* out of memory */
};

/* Any JSON value. The caller owns the reference. NULL: *fault, and e (ERR_REJECT; out of memory: ERR_BUG),
 * have the reason. */
json_t *json_document_load(struct bytes text, enum json_fault *fault, struct err *e);
/* The original text of a "json" field in the document; len 0: place is not such a field. */
struct bytes json_document_raw(struct bytes text, const json_t *place);

/* Iterates over the members of an object as original text. The text must have been accepted by
 * json_document_load (for any other, the result is undefined, but safe). json_raw_object returns the state
 * for json_raw_next; len 0: not an object. */
struct bytes json_raw_object(struct bytes text);
bool json_raw_next(struct bytes *rest, struct bytes *name, struct bytes *value);
/* json_raw_is: is this name, in quotes and perhaps with escapes, that word of ASCII letters? */
/* json_raw_holds_nul: does a value from json_raw_next contain a NUL character, which PostgreSQL's text cannot
 * store? */
bool json_raw_holds_nul(struct bytes value);
bool json_raw_is(struct bytes name, const char *word);

#endif
