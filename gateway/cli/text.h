/* Text of users for people to read: what the terminal's character set (LC_CTYPE, set by main) can show stays
 * as it is, all else is escaped as \xHH, so that no text moves the cursor or colours the screen. Any thread.
 */
#ifndef POSTDATE_GATEWAY_CLI_TEXT_H
#define POSTDATE_GATEWAY_CLI_TEXT_H

#include "core/base/bytes.h"
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#define TEXT_ANY_WIDTH ((size_t)-1)

/* On one line; cut to `columns` (two or more) on the screen, ending in "..", or to the `size` bytes of out.
 * Returns out. */
const char *text_show(struct bytes v, size_t columns, char *out, size_t size);
/* Words with names of users in them, on one line, uncut but for size: UTF-8 whatever LC_CTYPE is, without
 * what acts on a terminal (controls of both sets, changes of the writing's direction). Returns out. */
const char *text_words(struct bytes v, char *out, size_t size);
/* Valid JSON, on standard output, with escapes of JSON for what acts on a terminal: the same values. */
void text_print_as_json(struct bytes json);
/* A text of an object; "" where it has none of that name. */
const char *text_of(const json_t *object, const char *field);
/* On standard output, a line of what is shown of one thing: a text, a name ("" where it is empty), a time,
 * JSON, which is released. */
void text_print(const char *label, struct bytes v);
void text_print_name(const char *label, struct bytes name);
void text_print_time(const char *label, int64_t at_ms, int64_t now_ms);
void text_print_json(const char *label, json_t *value);
/* On standard output: the length of a message's body, and the body itself if it is text and not too long. */
void text_print_body(struct bytes body);

#endif
