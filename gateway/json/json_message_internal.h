/* Between the gateway/json/json_message*.c files. */
#ifndef POSTDATE_GATEWAY_JSON_JSON_MESSAGE_INTERNAL_H
#define POSTDATE_GATEWAY_JSON_JSON_MESSAGE_INTERNAL_H

#include "gateway/json/json_message.h"
#include "gateway/json/json_text.h"
#include <jansson.h>

/* One object of a document from json_document_load, as json_message_parse; p->text is the document's. Both
 * may be freed afterwards. */
int json_message_read(struct json_parser *p, const json_t *object, struct arena *a, struct message *out,
                      struct err *e);

/* The objects "properties" and "headers" (either may be NULL) as AMQP bytes, left in p->properties. */
int json_properties_build(struct json_parser *p, const json_t *properties, const json_t *headers,
                          const char *default_content_type, struct err *e);

#endif
