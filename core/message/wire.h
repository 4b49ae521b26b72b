/* AMQP 0-9-1 content properties and field tables as bytes, read and written without loss.
 *
 * Source: AMQP 0-9-1 specification, 4.2.5 and the errata at
 * https://www.rabbitmq.com/amqp-0-9-1-errata#section_3 (the type letters RabbitMQ really uses: t b B s u I i
 * l L f d D S A T F V x). Pure; readers keep views into the input and copy nothing; every length is checked;
 * nesting is limited to WIRE_DEPTH_MAX. */
#ifndef POSTDATE_CORE_MESSAGE_WIRE_H
#define POSTDATE_CORE_MESSAGE_WIRE_H

#include "core/base/buf.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include <stdbool.h>
#include <stdint.h>

#define WIRE_DEPTH_MAX 32

/* Property flag bits of class basic (spec 1.8.1). */
enum {
    WIRE_CONTENT_TYPE = 1 << 15,
    WIRE_CONTENT_ENCODING = 1 << 14,
    WIRE_HEADERS = 1 << 13,
    WIRE_DELIVERY_MODE = 1 << 12,
    WIRE_PRIORITY = 1 << 11,
    WIRE_CORRELATION_ID = 1 << 10,
    WIRE_REPLY_TO = 1 << 9,
    WIRE_EXPIRATION = 1 << 8,
    WIRE_MESSAGE_ID = 1 << 7,
    WIRE_TIMESTAMP = 1 << 6,
    WIRE_TYPE = 1 << 5,
    WIRE_USER_ID = 1 << 4,
    WIRE_APP_ID = 1 << 3,
    WIRE_CLUSTER_ID = 1 << 2,
};

struct wire_properties {
    uint16_t flags; /* which of the following are present */
    struct bytes content_type, content_encoding;
    struct bytes headers; /* the entries of the table, without its length prefix */
    uint8_t delivery_mode, priority;
    struct bytes correlation_id, reply_to, expiration, message_id;
    uint64_t timestamp; /* seconds since 1970 */
    struct bytes type, user_id, app_id, cluster_id;
};

/* One entry of a table (or array, then name is empty). */
struct wire_field {
    struct bytes name;
    char kind;          /* AMQP type letter */
    struct bytes value; /* the value's bytes without the type letter; for S, x: without the length prefix; for
                           F, A: the content without it */
    struct bytes entry; /* the whole entry: name, type letter, value; append it to copy the entry verbatim */
};

struct wire_cursor {
    struct bytes rest;
    bool array;
};

/* Reads a property list ("" counts as no properties). Checks the whole headers table, nested ones too.
 * ERR_REJECT on malformed bytes. Views point into raw. */
int wire_properties_read(struct bytes raw, struct wire_properties *out, struct err *e);

/* Appends flags and values. Names over 255 bytes set out->failed. */
void wire_properties_write(const struct wire_properties *p, struct buf *out);
/* The same in two steps, for headers that are written straight into out between them: begin returns where
 * they begin. Then p is to have WIRE_HEADERS, and its headers do not matter. */
size_t wire_properties_begin(const struct wire_properties *p, struct buf *out);
void wire_properties_end(const struct wire_properties *p, size_t headers, struct buf *out);
/* The end of one that is all that b has, and goes to the arena (buf_move); without WIRE_HEADERS where there
 * are none. */
int wire_properties_move(struct wire_properties *p, size_t headers, struct buf *b, struct arena *a,
                         struct bytes *out, struct err *e);

/* Splits n bytes off the front of rest, or a big-endian number of so many; false when there are fewer. */
bool wire_take(struct bytes *rest, size_t n, struct bytes *out);
bool wire_take_number(struct bytes *rest, size_t width, uint64_t *out);
uint64_t wire_number(struct bytes v); /* big-endian, at most 8 bytes */

struct wire_cursor wire_table(struct bytes entries);
struct wire_cursor wire_array(struct bytes items);
/* 1: out is filled; 0: end; -1: malformed. */
int wire_next(struct wire_cursor *c, struct wire_field *out);
/* Finds the first entry of that name; false when there is none. */
bool wire_find(struct bytes entries, const char *name, struct wire_field *out);
/* The same for a string: its value. */
bool wire_find_string(struct bytes entries, const char *name, struct bytes *out);
/* The same in a property list; false also for a malformed one. */
bool wire_find_header(struct bytes properties, const char *name, struct wire_field *out);
bool wire_has(struct bytes entries, struct bytes name); /* is there an entry of that name? */

/* Any integer kind (b B s u I i l L, and T) as int64; false for other kinds or an L beyond INT64_MAX. */
bool wire_field_int(const struct wire_field *f, int64_t *out);
/* f or d as double. */
bool wire_field_double(const struct wire_field *f, double *out);

/* Writers of one table entry. Names are at most 255 bytes, else out->failed. kind and the raw bytes of a
 * value as in struct wire_field. */
void wire_put_field(struct buf *out, struct bytes name, char kind, struct bytes value);
void wire_put_string(struct buf *out, struct bytes name, struct bytes value);
void wire_put_int64(struct buf *out, struct bytes name, int64_t value); /* 'I' where it fits, else 'l' */
void wire_put_long(struct buf *out, struct bytes name, int64_t value);  /* always 'l' */
/* Its two parts. A value alone is an item of an array. */
void wire_put_name(struct buf *out, struct bytes name);
void wire_put_item(struct buf *out, char kind, struct bytes value);
/* A value (S, x, F, A) whose content is written in between: begin returns where that begins. */
size_t wire_begin(struct buf *out, char kind);
void wire_end(struct buf *out, size_t begin);

#endif
