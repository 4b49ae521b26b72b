/* Prints objects of JSON answers as text for users, by tables. On standard output. */
#ifndef POSTDATE_GATEWAY_CLI_OPS_SHEET_H
#define POSTDATE_GATEWAY_CLI_OPS_SHEET_H

#include <jansson.h>
#include <stdint.h>

/* A column of a list, or a line of one object. Its text contains fields of the object in braces. If one of
 * them is null, an empty list or missing, the text after "||" is used; without it, the line is left out.
 *   {rate}                as it is: a text, a number, texts with commas between them
 *   {on:,}               texts with only a comma between them
 *   {said!}               our own words, whatever the terminal can show
 *   {exchange:name}       the same, but "" where it is empty
 *   {drained_at:when}     a time from now: in 14 min
 *   {changed_at:at}       a time, and that behind it
 *   {waiting:1000000+}    a number; from that one on, what follows it is put behind it
 *   {paused?on|off}       what it is where the field is true, and where it is not
 *   {revoked_at=revoked}  what it is where the field is a text
 * A table ends with {0}. */
struct sheet_cell {
    const char *head;
    int width; /* of a column: > 0 to the left, < 0 to the right, 0 the last one */
    const char *text;
    size_t most; /* columns on the screen, to which what it shows is cut; 0: all of it */
};

void sheet_print_heads(const struct sheet_cell *columns);
void sheet_print_row(const struct sheet_cell *columns, const json_t *object, int64_t now_ms);
void sheet_print_lines(const struct sheet_cell *lines, const json_t *object, int64_t now_ms);

#endif
