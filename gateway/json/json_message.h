/* The message object of Postdate's interfaces (NDJSON of `postdate schedule --batch`, `--json` output) to and
 * from the messages that are stored. Pure, but for memory.
 *
 * AMQP headers as JSON: strings S, integers I or l, other numbers d, true/false t, null V, objects F, arrays
 * A. What JSON has no word for: bytes (x, and strings that are not UTF-8) are {"!bytes": "<base64>"}, in both
 * directions; times (T) print as seconds since 1970, decimals (D) and floats as numbers, not-a-number and
 * infinities as strings. */
#ifndef POSTDATE_GATEWAY_JSON_JSON_MESSAGE_H
#define POSTDATE_GATEWAY_JSON_JSON_MESSAGE_H

#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/message/accept.h"
#include "core/message/message.h"
#include "sql/operate/lookup.h"

#define JSON_MESSAGE_MAX ((size_t)12 * 1024 * 1024) /* bytes of one object */

/* Belongs to one thread; reused from object to object. */
struct json_parser {
    struct accept_rules
        rules;         /* default exchange, allow list, max_delay_ms, max_body, max_properties, hold */
    int64_t now_ms;    /* delays count from here; set it before each batch */
    struct bytes text; /* what the objects come from; json_message_parse sets it itself */
    struct bytes outside_body; /* data not NULL: the body, and the object must bring none */
    struct buf properties, headers;
    bool stored; /* the headers come from the tables: ours may be among them */
};

void json_parser_init(struct json_parser *p, const struct accept_rules *rules);
void json_parser_free(struct json_parser *p);

/* One object to schedule. All bytes of out lie in the arena or in outside_body, exchange may point into the
 * rules; its id is not set. A due time in the past becomes now. ERR_REJECT names the field, its value and
 * what is allowed. */
int json_message_parse(struct json_parser *p, struct bytes text, struct arena *a, struct message *out,
                       struct err *e);

/* Properties as SQL stores them, {"headers":{…} or null,"properties":{…} or null}, appended to out as AMQP
 * bytes. ERR_REJECT: AMQP can't carry them (what the SQL functions accepted, it can). */
int json_message_encode(struct bytes json, struct buf *out, struct err *e);

enum json_style {
    JSON_STYLE_LINE = 0,
    JSON_STYLE_PRETTY = 1,
    JSON_STYLE_NO_BODY = 2, /* for listings, which do not read bodies */
};

/* Appends the object, without a line end; style: JSON_STYLE_ values or-ed. A body that is not UTF-8 (or holds
 * NUL) is body_base64; body is null once cancelling erased it. */
int json_message_print(const struct message_record *r, unsigned style, struct buf *out, struct err *e);

#endif
