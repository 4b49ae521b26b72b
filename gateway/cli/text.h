/* Prints untrusted text: characters that the terminal's character set (LC_CTYPE, set by main) can show are
 * kept, all others are escaped as \xHH, so that no text moves the cursor or changes colours. Any thread. */
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
/* A sentence that contains untrusted names, on one line, cut only to size: UTF-8 regardless of LC_CTYPE,
 * without terminal controls (C0, C1, changes of the writing direction). Returns out. */
const char *text_words(struct bytes v, char *out, size_t size);
/* Prints valid JSON on standard output, with terminal controls as JSON escapes: the same values. */
void text_print_as_json(struct bytes json);
/* A string field of an object; "" if missing. */
const char *text_of(const json_t *object, const char *field);
/* Each prints a line of one object's data on standard output: a text, a name ("" if empty), a time, or JSON,
 * which is released. */
void text_print(const char *label, struct bytes v);
void text_print_name(const char *label, struct bytes name);
void text_print_time(const char *label, int64_t at_ms, int64_t now_ms);
void text_print_json(const char *label, json_t *value);
/* On standard output: prints the length of a message's body, and the body if it is text and not too long. */
void text_print_body(struct bytes body);

#endif
