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
/* Copies the bytes of v to *at, and advances *at behind them. If v.data is NULL, nothing is copied and the
 * result has data NULL and the same len, such as that of a body which was not read. */
struct bytes bytes_copy(uint8_t **at, struct bytes v);
size_t bytes_copy_size(struct bytes v); /* bytes that bytes_copy needs */
bool bytes_equal(struct bytes a, struct bytes b);
/* Compares bytes as memcmp; a prefix sorts first. < 0, 0, > 0. */
int bytes_compare(struct bytes a, struct bytes b);
bool bytes_equal_str(struct bytes a, const char *s);
bool bytes_start_with_str(struct bytes a, const char *prefix);
struct bytes bytes_trim(struct bytes b); /* without blanks and tabs at both ends */

/* Does the name match? '*' in the pattern matches any run of bytes. Takes at most pattern times name steps.
 */
bool glob_matches(struct bytes pattern, struct bytes name);

/* The index of a in words, which ends with NULL; -1: not in it. */
int bytes_find_word(struct bytes a, const char *const words[]);

/* Four bytes in network order, as RabbitMQ and PostgreSQL send numbers. */
static inline uint32_t bytes_read_u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* The value of a hexadecimal digit; -1: c is not one. */
int hex_digit(uint8_t c);

/* Valid UTF-8 (RFC 3629: no surrogates, no overlong forms, up to U+10FFFF) without a NUL byte: a value that
 * PostgreSQL's `text` can hold in a UTF8 database. */
bool bytes_is_text(struct bytes a);

/* Makes a NUL-terminated text one line of valid UTF-8, in place: control characters, and bytes that belong to
 * no character, become '?'. For log lines and errors that quote text of users or servers. */
void bytes_clean_text(char *text);

/* Writes a printable form for messages into out (always NUL-terminated): control and non-ASCII bytes as \xNN,
 * cut with "..." where it does not fit. Returns out. */
const char *bytes_printable(struct bytes a, char *out, size_t out_size);

/* Is word in `words`, which are separated by blanks? */
bool bytes_is_among(struct bytes word, const char *words);
/* Finds the value that a misspelt word probably means, in any case, among `words` (lower case, separated by
 * blanks): the only one with that prefix, else one that differs in few letters. Copies it to out, cut to
 * size. False: none is similar, or word has more than 31 bytes. */
bool nearest_word(const char *word, const char *words, char *out, size_t size);

#endif
