/* Between the gateway/json/json_message*.c files. */
#ifndef POSTDATE_GATEWAY_JSON_JSON_MESSAGE_INTERNAL_H
#define POSTDATE_GATEWAY_JSON_JSON_MESSAGE_INTERNAL_H

#include "gateway/json/json_message.h"
#include <jansson.h>

/* One object of a document from json_document_load, as json_message_parse; p->text is the document's. Both
 * may be freed afterwards. */
int json_message_read(struct json_parser *p, const json_t *object, struct arena *a, struct message *out,
                      struct err *e);

/* The objects "properties" and "headers" (either may be NULL) as AMQP bytes, left in p->properties. */
int json_properties_build(struct json_parser *p, const json_t *properties, const json_t *headers,
                          const char *default_content_type, struct err *e);

/* A value for error texts: its JSON, printable and cut short. */
#define JSON_SHOW_SIZE 72
const char *json_show(const json_t *value, char out[JSON_SHOW_SIZE]);

struct bytes json_text(const json_t *string);

/* The string's text when it has no NUL inside, else "": for functions that take C strings, which refuse "".
 */
const char *json_c_string(const json_t *string);

/* A string field of at most MESSAGE_NAME_MAX bytes of UTF-8 without NUL. */
int json_name(const char *field, const json_t *value, struct bytes *out, struct err *e);

#endif
