/* Values of JSON as texts: for AMQP, for functions that take C strings, and for people. */
#ifndef POSTDATE_GATEWAY_JSON_JSON_TEXT_H
#define POSTDATE_GATEWAY_JSON_JSON_TEXT_H

#include "core/base/buf.h"
#include "core/base/err.h"
#include <jansson.h>

/* A value for error texts: its JSON, printable and cut short. */
#define JSON_SHOW_SIZE 72
const char *json_show(const json_t *value, char out[JSON_SHOW_SIZE]);

struct bytes json_text(const json_t *string);

/* The string's text when it has no NUL inside, else "": for functions that take C strings, which refuse "".
 */
const char *json_c_string(const json_t *string);

/* Appends it. -1: out of memory. */
int json_put(const json_t *value, size_t flags, struct buf *out);

/* ERR_REJECT; -1. */
int json_fail_field(const char *field, const json_t *v, const char *allowed, struct err *e);

/* A string field of at most MESSAGE_NAME_MAX bytes of UTF-8 without NUL. */
int json_name(const char *field, const json_t *value, struct bytes *out, struct err *e);

#endif
