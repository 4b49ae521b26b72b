/* Converts between stored messages and the message object of Postdate's interfaces (HTTP, NDJSON of `postdate
 * schedule --batch`, `--json` output). Pure, except for memory.
 *
 * AMQP headers as JSON: strings S, integers I or l, other numbers d, true/false t, null V, objects F, arrays
 * A. Types without a JSON counterpart: bytes (x, and strings that are not UTF-8) are {"!bytes": "<base64>"},
 * in both directions; times (T) print as seconds since 1970, decimals (D) and floats as numbers, not-a-number
 * and infinities as strings. */
#ifndef POSTDATE_GATEWAY_JSON_JSON_MESSAGE_H
#define POSTDATE_GATEWAY_JSON_JSON_MESSAGE_H

#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/message/accept.h"
#include "core/message/message.h"
#include "core/message/wire.h"
#include "sql/operate/lookup.h"
#include <jansson.h>

/* --- JSON values as texts: for AMQP, as C strings, and for users. */
/* A value for error texts: its JSON, printable and cut. */
#define JSON_SHOW_SIZE 72
const char *json_show(const json_t *value, char out[JSON_SHOW_SIZE]);

struct bytes json_text(const json_t *string);

/* The string's text if it contains no NUL, else "": for functions that take C strings, which reject "". */
const char *json_c_string(const json_t *string);

/* Appends it. -1: out of memory. */
int json_put(const json_t *value, size_t flags, struct buf *out);

/* ERR_REJECT; -1. */
int json_fail_field(const char *field, const json_t *v, const char *allowed, struct err *e);

/* A string field of at most MESSAGE_NAME_MAX bytes of UTF-8 without NUL. */
int json_name(const char *field, const json_t *value, struct bytes *out, struct err *e);

#define JSON_MESSAGE_MAX ((size_t)12 * 1024 * 1024) /* bytes of one object */

/* Belongs to one thread; reused from object to object. */
struct json_parser {
    /* default exchange, allow list, max_delay_ms, max_body, max_properties, hold */
    struct accept_rules rules;
    int64_t now_ms;            /* delays count from here; set it before each batch */
    struct bytes text;         /* the text of the objects; json_message_parse sets it itself */
    struct bytes outside_body; /* data not NULL: the body; the object must have none */
    struct buf properties, headers;
    bool stored; /* the headers come from the database: Postdate's are allowed */
};

void json_parser_init(struct json_parser *p, const struct accept_rules *rules);
void json_parser_free(struct json_parser *p);

/* One object to schedule. All bytes of out are in the arena or in outside_body, exchange may point into the
 * rules; the id is not set. A due time in the past becomes now. ERR_REJECT names the field, its value and
 * what is allowed. */
int json_message_parse(struct json_parser *p, struct bytes text, struct arena *a, struct message *out,
                       struct err *e);

/* Properties as SQL stores them, {"headers":{…} or null,"properties":{…} or null}, appended to out as AMQP
 * bytes. ERR_REJECT: AMQP cannot represent them (those accepted by the SQL functions, it can). */
int json_message_encode(struct bytes json, struct buf *out, struct err *e);

enum json_style {
    JSON_STYLE_LINE = 0,
    JSON_STYLE_PRETTY = 1,
    JSON_STYLE_NO_BODY = 2, /* for lists, which do not read bodies */
};

/* Appends the object, without a line end; style: JSON_STYLE_ values or-ed. A body that is not UTF-8 (or holds
 * NUL) is body_base64; body is null once cancelling erased it. */
int json_message_print(const struct message_record *r, unsigned style, struct buf *out, struct err *e);

/* --- Between the gateway/json/json_message*.c files. */
/* One object of a document from json_document_load, as json_message_parse; p->text is the document's. Both
 * may be freed afterwards. */
int json_message_read(struct json_parser *p, const json_t *object, struct arena *a, struct message *out,
                      struct err *e);

/* The value of "delay_ms", "delay" or "due_at", in ms. ERR_REJECT names the field. */
int json_due_read(const char *field, const json_t *v, int64_t *out_ms, struct err *e);

/* Text properties, by their names in JSON; the last row has no name. */
extern const struct json_property_text {
    uint16_t flag;
    const char *name;
    size_t at;      /* in struct wire_properties */
    bool user_sets; /* allowed in "properties" of a message to schedule */
} json_property_texts[];

/* --- json_message.c: new references, or NULL if out of memory (gateway/json/json_memory.h) */

/* A string, or {"!bytes": …} if it is not UTF-8. */
json_t *json_text_value(struct bytes v);
json_t *json_properties_value(const struct wire_properties *w);
/* The entries of a table of AMQP, such as headers. */
json_t *json_table_value(struct bytes entries);
/* RFC 3339; null for -1. */
json_t *json_time_value(int64_t ms);
/* Sets "body", or "body_base64" if it is not UTF-8. */
void json_body_set(json_t *object, struct bytes body);

#endif
