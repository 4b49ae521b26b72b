/* Between the gateway/json/json_message*.c files. */
#ifndef POSTDATE_GATEWAY_JSON_JSON_MESSAGE_INTERNAL_H
#define POSTDATE_GATEWAY_JSON_JSON_MESSAGE_INTERNAL_H

#include "core/message/wire.h"
#include "gateway/json/json_message.h"
#include "gateway/json/json_text.h"
#include <jansson.h>

/* One object of a document from json_document_load, as json_message_parse; p->text is the document's. Both
 * may be freed afterwards. */
int json_message_read(struct json_parser *p, const json_t *object, struct arena *a, struct message *out,
                      struct err *e);

/* The value of "delay_ms", "delay" or "due_at", in ms. ERR_REJECT names the field. */
int json_due_read(const char *field, const json_t *v, int64_t *out_ms, struct err *e);

/* Properties that are texts, by their names in JSON; the last one has none. */
extern const struct json_property_text {
    uint16_t flag;
    const char *name;
    size_t at;      /* in struct wire_properties */
    bool user_sets; /* "properties" of a message to schedule may have it, as any text */
} json_property_texts[];

/* The objects "properties" and "headers" (either may be NULL) as AMQP bytes, left in p->properties. */
int json_properties_build(struct json_parser *p, const json_t *properties, const json_t *headers,
                          const char *default_content_type, struct err *e);

/* --- json_message_print.c: new references, or NULL without memory, as gateway/json/json_memory.h counts it
 */

/* A string, or {"!bytes": …} where it is not UTF-8. */
json_t *json_text_value(struct bytes v);
json_t *json_properties_value(const struct wire_properties *w);
/* The entries of a table of AMQP, such as headers. */
json_t *json_table_value(struct bytes entries);
/* RFC 3339; null for -1. */
json_t *json_time_value(int64_t ms);
/* "body", or "body_base64" where it is not UTF-8. */
void json_body_set(json_t *object, struct bytes body);

#endif
