/* A view of bytes: pointer and length. Never owns, never NUL-terminated. */
#ifndef POSTDATE_CORE_BASE_BYTES_H
#define POSTDATE_CORE_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bytes {
    const uint8_t *data;
    size_t len;
};

struct bytes bytes_of(const void *data, size_t len);
struct bytes bytes_of_str(const char *s); /* without the NUL; NULL gives an empty view */
/* Copies what v has to *at, and moves *at behind it. A view of nothing (data NULL) stays one, with its
 * length: it says how long something was that is not there. */
struct bytes bytes_copy(uint8_t **at, struct bytes v);
size_t bytes_copy_size(struct bytes v); /* what that takes */
bool bytes_equal(struct bytes a, struct bytes b);
/* By bytes, the shorter one first where one begins with the other: < 0, 0, > 0. */
int bytes_compare(struct bytes a, struct bytes b);
bool bytes_equal_str(struct bytes a, const char *s);
bool bytes_start_with_str(struct bytes a, const char *prefix);

/* Does the name match? '*' in the pattern matches any run of bytes. Takes at most pattern times name steps.
 */
bool glob_matches(struct bytes pattern, struct bytes name);

/* Which of these words (NULL behind the last) it is; -1: none. */
int bytes_find_word(struct bytes a, const char *const words[]);

/* Four bytes in network order, as both servers send numbers. */
static inline uint32_t bytes_read_u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* The value of a hexadecimal digit; -1: it is none. */
int hex_digit(uint8_t c);

/* Valid UTF-8 (RFC 3629: no surrogates, no overlong forms, up to U+10FFFF) without a NUL byte: what a
 * Postgres `text` of a UTF8 database can hold. */
bool bytes_is_text(struct bytes a);

/* Makes a NUL-terminated text one line of valid UTF-8, in place: control characters, and bytes that belong to
 * no character, become '?'. For messages that quote what somebody wrote. */
void bytes_clean_text(char *text);

/* Writes a printable form for messages into out (always NUL-terminated): control and non-ASCII bytes as \xNN,
 * cut with "..." where it does not fit. Returns out. */
const char *bytes_printable(struct bytes a, char *out, size_t out_size);

/* Whether it is one of `words`, which are separated by blanks. */
bool bytes_is_among(struct bytes word, const char *words);
/* The word among those of `words` (separated by blanks, in lower case) that was probably meant, whether in
 * capitals or not, cut to size: the only one that begins so, else one with few other letters; false: none is
 * near. Words of more than 31 bytes are near nothing. */
bool nearest_word(const char *word, const char *words, char *out, size_t size);

#endif
