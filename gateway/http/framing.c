#include "gateway/http/framing.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define LENGTH_DIGITS_MAX 18
#define CHUNK_DIGITS_MAX 15

const char *const framing_header_names[FRAMING_HEADERS] = {
    [FRAMING_HOST] = "Host",
    [FRAMING_CONTENT_LENGTH] = "Content-Length",
    [FRAMING_TRANSFER_ENCODING] = "Transfer-Encoding",
    [FRAMING_AUTHORIZATION] = "Authorization",
    [FRAMING_CONTENT_TYPE] = "Content-Type",
    [FRAMING_CONTENT_ENCODING] = "Content-Encoding",
    [FRAMING_IDEMPOTENCY_KEY] = "Idempotency-Key",
    [FRAMING_EXPECT] = "Expect",
    [FRAMING_IF_MATCH] = "If-Match",
    [FRAMING_IF_NONE_MATCH] = "If-None-Match",
};

static const char *const texts[FRAMING_VALUE_TOO_LONG] = {
    [FRAMING_FINE] = "nothing is wrong",
    [FRAMING_TIMEOUT] = "the request did not arrive in time (http.timeout)",
    [FRAMING_CONTROL] = "the request line and headers hold a control character",
    [FRAMING_LINE_END] = "a line ends with CR or LF alone: allowed is CR LF",
    [FRAMING_REQUEST_LINE] = "the first line is not METHOD TARGET HTTP/1.1, with one blank between them",
    [FRAMING_VERSION] = "the version is not one of HTTP/1.1 and HTTP/1.0",
    [FRAMING_HEADER_LINE] = "a header is not NAME: VALUE, without blanks in the name or before the colon",
    [FRAMING_FOLDED] = "folded header lines are not allowed (RFC 9112, obsolete line folding)",
    [FRAMING_NO_HOST] = "the header Host is missing",
    [FRAMING_LENGTH] = "Content-Length: allowed is one decimal number of up to 18 digits",
    [FRAMING_LENGTH_AND_ENCODING] = "Content-Length and Transfer-Encoding exclude each other",
    [FRAMING_ENCODING] = "Transfer-Encoding: allowed is chunked, and no other",
    [FRAMING_OLD_ENCODING] = "Transfer-Encoding: there is none in HTTP/1.0",
    [FRAMING_CHUNK_SIZE] = "a chunk does not begin with its size in up to 15 hexadecimal digits and CR LF",
    [FRAMING_CHUNK_END] = "a chunk is not followed by CR LF",
    [FRAMING_TRAILER] = "the trailer after the last chunk is not headers, or more than 8192 bytes",
};

const char *framing_refusal_text(enum framing_refusal why, char out[160])
{
    if (why == FRAMING_HEAD_TOO_LARGE)
        snprintf(out, 160, "the request line and headers are longer than %u bytes", FRAMING_HEAD_MAX);
    else if (why == FRAMING_TARGET_TOO_LONG)
        snprintf(out, 160, "the request target is longer than %u bytes", FRAMING_TARGET_MAX);
    else if (why >= FRAMING_TWICE && why < FRAMING_REFUSALS)
        snprintf(out, 160, "the header %s is given more than once: allowed is once",
                 framing_header_names[why - FRAMING_TWICE]);
    else if (why >= FRAMING_VALUE_TOO_LONG && why < FRAMING_TWICE)
        snprintf(out, 160, "the header %s is longer than %u bytes",
                 framing_header_names[why - FRAMING_VALUE_TOO_LONG], FRAMING_VALUE_MAX);
    else
        snprintf(out, 160, "%s", why < FRAMING_VALUE_TOO_LONG ? texts[why] : "the request is malformed");
    return out;
}

void framing_open(struct framing *f)
{
    *f = (struct framing){.state = FRAMING_IN_HEAD};
    buf_init(&f->line, FRAMING_HEAD_MAX);
}

void framing_close(struct framing *f)
{
    buf_free(&f->line);
}

bool framing_is_in_head(const struct framing *f)
{
    /* What may yet be an empty line is not one: by such lines a connection would be kept for ever. */
    return f->state == FRAMING_IN_HEAD && f->line.len > 0 && f->line.data[0] != '\r';
}

/* Most connections are idle most of the time. */
static void forget_line(struct framing *f)
{
    buf_free(&f->line);
    buf_init(&f->line, FRAMING_HEAD_MAX);
}

/* --- the head */

static bool is_token(struct bytes b)
{
    for (size_t i = 0; i < b.len; i++) {
        uint8_t c = b.data[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && (c == 0 || strchr("!#$%&'*+-.^_`|~", c) == NULL))
            return false;
    }
    return b.len > 0;
}

bool framing_is_word(struct bytes a, const char *word)
{
    return a.len == strlen(word) && strncasecmp((const char *)a.data, word, a.len) == 0;
}

/* Up to the separator, which is taken and not returned. False: there is none. */
static bool cut_bytes(struct bytes *rest, char separator, struct bytes *out)
{
    const uint8_t *end = rest->len > 0 ? memchr(rest->data, separator, rest->len) : NULL;
    if (end == NULL)
        return false;
    *out = bytes_of(rest->data, (size_t)(end - rest->data));
    *rest = bytes_of(end + 1, rest->len - out->len - 1);
    return true;
}

static enum framing_refusal read_request_line(struct bytes line, struct framing_head *h)
{
    struct bytes version = line;
    if (!cut_bytes(&version, ' ', &h->method) || !cut_bytes(&version, ' ', &h->target) ||
        h->method.len > FRAMING_METHOD_MAX || !is_token(h->method) || h->target.len == 0 ||
        memchr(line.data, '\t', line.len) != NULL)
        return FRAMING_REQUEST_LINE;
    if (h->target.len > FRAMING_TARGET_MAX)
        return FRAMING_TARGET_TOO_LONG;
    if (!bytes_start_with_str(version, "HTTP/"))
        return FRAMING_REQUEST_LINE;
    h->old = bytes_equal_str(version, "HTTP/1.0");
    return h->old || bytes_equal_str(version, "HTTP/1.1") ? FRAMING_FINE : FRAMING_VERSION;
}

static void read_connection(struct bytes value, struct framing_head *h)
{
    struct bytes one;
    for (bool more = true; more;) {
        more = cut_bytes(&value, ',', &one);
        struct bytes token = bytes_trim(more ? one : value);
        h->close = h->close || framing_is_word(token, "close");
        h->keep = h->keep || framing_is_word(token, "keep-alive");
    }
}

static enum framing_refusal read_header(struct bytes line, struct framing_head *h)
{
    struct bytes name, value = line;
    if (line.data[0] == ' ' || line.data[0] == '\t')
        return FRAMING_FOLDED;
    if (!cut_bytes(&value, ':', &name) || !is_token(name))
        return FRAMING_HEADER_LINE;
    value = bytes_trim(value);
    if (framing_is_word(name, "Connection"))
        read_connection(value, h);
    for (int i = 0; i < FRAMING_HEADERS; i++) {
        if (!framing_is_word(name, framing_header_names[i]))
            continue;
        if (h->value[i].data != NULL)
            return (enum framing_refusal)(FRAMING_TWICE + i);
        if (value.len > FRAMING_VALUE_MAX)
            return (enum framing_refusal)(FRAMING_VALUE_TOO_LONG + i);
        h->value[i] = value;
    }
    return FRAMING_FINE;
}

static enum framing_refusal read_length(struct framing_head *h)
{
    struct bytes digits = h->value[FRAMING_CONTENT_LENGTH];
    bool has_length = digits.data != NULL, has_encoding = h->value[FRAMING_TRANSFER_ENCODING].data != NULL;
    if (has_length && (digits.len == 0 || digits.len > LENGTH_DIGITS_MAX))
        return FRAMING_LENGTH;
    for (size_t i = 0; has_length && i < digits.len; i++) {
        if (digits.data[i] < '0' || digits.data[i] > '9')
            return FRAMING_LENGTH;
        h->length = h->length * 10 + (uint64_t)(digits.data[i] - '0');
    }
    if (!has_encoding)
        return FRAMING_FINE;
    if (has_length)
        return FRAMING_LENGTH_AND_ENCODING;
    if (h->old)
        return FRAMING_OLD_ENCODING;
    h->chunked = framing_is_word(h->value[FRAMING_TRANSFER_ENCODING], "chunked");
    return h->chunked ? FRAMING_FINE : FRAMING_ENCODING;
}

/* The lines are whole, and hold no CR, LF or other control characters but tabs. */
static enum framing_refusal read_head(struct bytes rest, struct framing_head *h)
{
    struct bytes line;
    enum framing_refusal why = FRAMING_FINE;
    bool first = true;
    while (why == FRAMING_FINE && cut_bytes(&rest, '\n', &line) && line.len > 1) {
        line.len--; /* CR */
        why = first ? read_request_line(line, h) : read_header(line, h);
        first = false;
    }
    if (why == FRAMING_FINE && !h->old && h->value[FRAMING_HOST].data == NULL)
        why = FRAMING_NO_HOST;
    return why == FRAMING_FINE ? read_length(h) : why;
}

static enum framing_event refuse(struct framing *f, enum framing_refusal why)
{
    f->why = why;
    f->state = FRAMING_ENDED;
    return FRAMING_REFUSED;
}

static enum framing_event end_head(struct framing *f)
{
    struct framing_head *h = &f->head;
    *h = (struct framing_head){0};
    enum framing_refusal why = read_head(buf_bytes(&f->line), h);
    if (why != FRAMING_FINE)
        return refuse(f, why);
    f->last = h->close || (h->old && !h->keep);
    f->left = h->length;
    f->state = h->chunked ? FRAMING_IN_CHUNK_SIZE : f->left > 0 ? FRAMING_IN_BODY : FRAMING_AT_END;
    return FRAMING_HEAD;
}

/* --- lines */

/* Adds to the line what belongs to it; true at its CR LF. *why: what may not be in one. */
static bool take_line(struct framing *f, struct bytes *in, enum framing_refusal *why)
{
    *why = FRAMING_FINE;
    while (in->len > 0) {
        uint8_t c = in->data[0];
        bool behind_cr = f->line.len > 0 && f->line.data[f->line.len - 1] == '\r';
        *in = bytes_of(in->data + 1, in->len - 1);
        if ((c == '\n') != behind_cr)
            *why = FRAMING_LINE_END;
        else if ((c < ' ' && c != '\t' && c != '\r' && c != '\n') || c == 127)
            *why = FRAMING_CONTROL;
        buf_put_u8(&f->line, c);
        if (*why == FRAMING_FINE && f->line.failed)
            *why = FRAMING_HEAD_TOO_LARGE;
        if (*why != FRAMING_FINE || c == '\n')
            return *why == FRAMING_FINE;
    }
    return false;
}

/* The last line is empty: the head or trailer is whole. */
static bool is_whole(const struct framing *f)
{
    size_t n = f->line.len;
    return n == 2 || (n > 3 && memcmp(f->line.data + n - 4, "\r\n\r\n", 4) == 0);
}

static enum framing_event take_head(struct framing *f, struct bytes *in)
{
    enum framing_refusal why;
    while (take_line(f, in, &why)) {
        if (f->line.len == 2)
            buf_reset(&f->line); /* an empty line before a request is let be */
        else if (is_whole(f))
            return end_head(f);
    }
    return why != FRAMING_FINE ? refuse(f, why) : FRAMING_NOTHING;
}

/* --- chunks */

/* Of a whole line, with its CR LF. */
static bool read_chunk_size(struct bytes line, uint64_t *size)
{
    size_t n = 0, end = line.len - 2;
    for (*size = 0; n < end && hex_digit(line.data[n]) >= 0; n++)
        *size = *size << 4 | (uint64_t)hex_digit(line.data[n]);
    struct bytes extension = bytes_trim(bytes_of(line.data + n, end - n));
    return n >= 1 && n <= CHUNK_DIGITS_MAX && (n == end || (extension.len > 0 && extension.data[0] == ';'));
}

static enum framing_event take_chunk_size(struct framing *f, struct bytes *in)
{
    enum framing_refusal why;
    uint64_t size = 0;
    bool whole = take_line(f, in, &why);
    if (why != FRAMING_FINE || f->line.len > FRAMING_CHUNK_LINE_MAX ||
        (whole && !read_chunk_size(buf_bytes(&f->line), &size)))
        return refuse(f, FRAMING_CHUNK_SIZE);
    if (!whole)
        return FRAMING_NOTHING;
    buf_reset(&f->line);
    f->state = size == 0 ? FRAMING_IN_TRAILER : FRAMING_IN_CHUNK;
    f->left = size;
    return FRAMING_NOTHING;
}

static enum framing_event take_chunk_end(struct framing *f, struct bytes *in)
{
    enum framing_refusal why;
    bool whole = take_line(f, in, &why);
    if (why != FRAMING_FINE || (f->line.len > 0 && f->line.data[0] != '\r'))
        return refuse(f, FRAMING_CHUNK_END);
    if (!whole)
        return FRAMING_NOTHING;
    buf_reset(&f->line);
    f->state = FRAMING_IN_CHUNK_SIZE;
    return FRAMING_NOTHING;
}

static bool is_trailer(struct bytes rest)
{
    struct bytes line, name;
    while (cut_bytes(&rest, '\n', &line) && line.len > 1)
        if (!cut_bytes(&line, ':', &name) || !is_token(name))
            return false;
    return true;
}

static enum framing_event take_trailer(struct framing *f, struct bytes *in)
{
    enum framing_refusal why;
    bool whole = false;
    while (!whole && take_line(f, in, &why))
        whole = is_whole(f);
    if (why != FRAMING_FINE || f->line.len > FRAMING_TRAILER_MAX ||
        (whole && !is_trailer(buf_bytes(&f->line))))
        return refuse(f, FRAMING_TRAILER);
    f->state = whole ? FRAMING_AT_END : f->state;
    return FRAMING_NOTHING;
}

static enum framing_event take_body(struct framing *f, struct bytes *in, struct bytes *data)
{
    *data = bytes_of(in->data, in->len < f->left ? in->len : (size_t)f->left);
    *in = bytes_of(in->data + data->len, in->len - data->len);
    f->left -= data->len;
    if (f->left == 0)
        f->state = f->state == FRAMING_IN_CHUNK ? FRAMING_BEHIND_CHUNK : FRAMING_AT_END;
    return data->len > 0 ? FRAMING_DATA : FRAMING_NOTHING;
}

static enum framing_event step(struct framing *f, struct bytes *in, struct bytes *data)
{
    switch (f->state) {
    case FRAMING_IN_HEAD:
        return take_head(f, in);
    case FRAMING_IN_BODY:
    case FRAMING_IN_CHUNK:
        return take_body(f, in, data);
    case FRAMING_IN_CHUNK_SIZE:
        return take_chunk_size(f, in);
    case FRAMING_BEHIND_CHUNK:
        return take_chunk_end(f, in);
    case FRAMING_IN_TRAILER:
        return take_trailer(f, in);
    case FRAMING_AT_END:
        forget_line(f);
        f->state = f->last ? FRAMING_ENDED : FRAMING_IN_HEAD;
        return FRAMING_END;
    case FRAMING_ENDED:
        break;
    }
    *in = (struct bytes){0};
    return FRAMING_NOTHING;
}

enum framing_event framing_next(struct framing *f, struct bytes *in, struct bytes *data)
{
    enum framing_state before;
    enum framing_event event;
    if (f->head.method.data != NULL)
        forget_line(f); /* the head has been looked at */
    f->head.method = (struct bytes){0};
    do {
        before = f->state;
        event = step(f, in, data);
    } while (event == FRAMING_NOTHING && f->state != before);
    return event;
}
