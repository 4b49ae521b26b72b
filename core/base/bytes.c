#include "core/base/bytes.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

struct bytes bytes_of(const void *data, size_t len)
{
    return (struct bytes){.data = data, .len = len};
}

struct bytes bytes_of_str(const char *s)
{
    return s ? bytes_of(s, strlen(s)) : (struct bytes){0};
}

size_t bytes_copy_size(struct bytes v)
{
    return v.data ? v.len : 0;
}

struct bytes bytes_copy(uint8_t **at, struct bytes v)
{
    struct bytes copy = bytes_of(v.data ? *at : NULL, v.len);
    if (bytes_copy_size(v) > 0)
        memcpy(*at, v.data, v.len);
    *at += bytes_copy_size(v);
    return copy;
}

bool bytes_equal(struct bytes a, struct bytes b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

int bytes_compare(struct bytes a, struct bytes b)
{
    size_t least = a.len < b.len ? a.len : b.len;
    int d = least ? memcmp(a.data, b.data, least) : 0; /* an empty one may have no data */
    return d ? d : (a.len > b.len) - (a.len < b.len);
}

bool bytes_equal_str(struct bytes a, const char *s)
{
    return bytes_equal(a, bytes_of_str(s));
}

struct bytes bytes_trim(struct bytes b)
{
    while (b.len > 0 && (b.data[0] == ' ' || b.data[0] == '\t'))
        b = bytes_of(b.data + 1, b.len - 1);
    while (b.len > 0 && (b.data[b.len - 1] == ' ' || b.data[b.len - 1] == '\t'))
        b.len--;
    return b;
}

bool bytes_start_with_str(struct bytes a, const char *prefix)
{
    size_t len = strlen(prefix);
    return a.len >= len && (len == 0 || memcmp(a.data, prefix, len) == 0);
}

int bytes_find_word(struct bytes a, const char *const words[])
{
    for (int i = 0; words[i] != NULL; i++)
        if (bytes_equal_str(a, words[i]))
            return i;
    return -1;
}

int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20; /* lower case */
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Goes back to the last star only. */
bool glob_matches(struct bytes pattern, struct bytes name)
{
    size_t p = 0, n = 0;
    size_t star = SIZE_MAX, resume = 0;
    while (n < name.len) {
        if (p < pattern.len && pattern.data[p] == '*') {
            star = p++;
            resume = n;
        } else if (p < pattern.len && pattern.data[p] == name.data[n]) {
            p++;
            n++;
        } else if (star != SIZE_MAX) {
            p = star + 1;
            n = ++resume;
        } else {
            return false;
        }
    }
    while (p < pattern.len && pattern.data[p] == '*')
        p++;
    return p == pattern.len;
}

/* Length of the UTF-8 sequence at p (1..4), 0 if there is none within len bytes. */
static size_t utf8_sequence(const uint8_t *p, size_t len)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* what is less has a shorter form */
    uint8_t c = p[0];
    size_t n = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    uint32_t point = n == 1 ? c : c & (0x7Fu >> n);
    if ((n > 1 && c < 0xC0) || c > 0xF7 || len < n)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
        point = point << 6 | (p[i] & 0x3Fu);
    }
    bool surrogate = point >= 0xD800 && point <= 0xDFFF;
    return point < least[n] || point > 0x10FFFF || surrogate ? 0 : n;
}

bool bytes_is_text(struct bytes a)
{
    size_t i = 0;
    while (i < a.len) {
        if (a.data[i] == 0)
            return false;
        size_t n = utf8_sequence(a.data + i, a.len - i);
        if (n == 0)
            return false;
        i += n;
    }
    return true;
}

void bytes_clean_text(char *text)
{
    uint8_t *p = (uint8_t *)text;
    size_t left = strlen(text);
    while (left > 0) {
        size_t n = utf8_sequence(p, left);
        if (n == 0 || p[0] < 0x20 || p[0] == 0x7F) {
            *p = '?';
            n = 1;
        }
        p += n;
        left -= n;
    }
}

const char *bytes_printable(struct bytes a, char *out, size_t out_size)
{
    if (out_size == 0)
        return "";
    size_t room = out_size - 1;
    size_t used = 0, cut = 0; /* cut: how much still leaves room for "..." */
    for (size_t i = 0; i < a.len; i++) {
        uint8_t c = a.data[i];
        char shown[8];
        size_t need = (size_t)snprintf(shown, sizeof shown, c >= 0x20 && c < 0x7F ? "%c" : "\\x%02x", c);
        if (used + need > room) {
            snprintf(out + cut, out_size - cut, "...");
            return out;
        }
        memcpy(out + used, shown, need);
        used += need;
        if (used + 3 <= room)
            cut = used;
    }
    out[used] = '\0';
    return out;
}

/* --- lists of words */
bool bytes_is_among(struct bytes word, const char *words)
{
    for (size_t len; *words != '\0'; words += len + strspn(words + len, " ")) {
        len = strcspn(words, " ");
        if (len > 0 && bytes_equal(word, bytes_of(words, len)))
            return true;
    }
    return false;
}

#define WORD_MAX 31

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* How many letters to change, add, take away, or swap with the next one. */
static int distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int rows[3][WORD_MAX + 1];
    for (size_t j = 0; j <= b_len; j++)
        rows[0][j] = (int)j;
    for (size_t i = 1; i <= a_len; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        row[0] = (int)i;
        for (size_t j = 1; j <= b_len; j++) {
            int letter = tolower((unsigned char)a[i - 1]);
            row[j] = least(least(above[j], row[j - 1]) + 1, above[j - 1] + (letter != b[j - 1]));
            if (i > 1 && j > 1 && letter == b[j - 2] && tolower((unsigned char)a[i - 2]) == b[j - 1])
                row[j] = least(row[j], before[j - 2] + 1);
        }
    }
    return rows[a_len % 3][b_len];
}

/* The only word that begins with these three letters or more. */
static bool only_beginning(const char *word, const char *words, char *out, size_t size)
{
    size_t len = strlen(word);
    int found = 0;
    for (const char *w = words + strspn(words, " "); *w != '\0' && len >= 3; w += strspn(w, " ")) {
        size_t n = strcspn(w, " ");
        if (n > len && strncasecmp(word, w, len) == 0 && found++ == 0)
            snprintf(out, size, "%.*s", (int)n, w);
        w += n;
    }
    return found == 1;
}

bool nearest_word(const char *word, const char *words, char *out, size_t size)
{
    size_t len = strlen(word);
    int best = len > 8 ? 4 : len > 4 ? 3 : 2; /* fewer changes than this */
    bool found = false;
    if (only_beginning(word, words, out, size))
        return true;
    for (const char *w = words + strspn(words, " "); *w != '\0'; w += strspn(w, " ")) {
        size_t n = strcspn(w, " ");
        int d = len <= WORD_MAX && n <= WORD_MAX ? distance(word, len, w, n) : WORD_MAX;
        if (d < best) {
            best = d;
            found = true;
            snprintf(out, size, "%.*s", (int)n, w);
        }
        w += n;
    }
    return found;
}
