/* Parses HTTP/1.1 requests strictly by RFC 9112: if a proxy and this parser disagreed about the end of a
 * request, a body could be executed as a request (request smuggling). Pure. Only the headers that Postdate
 * uses are read; each may occur once, with at most FRAMING_VALUE_MAX bytes. */
#ifndef POSTDATE_GATEWAY_HTTP_FRAMING_H
#define POSTDATE_GATEWAY_HTTP_FRAMING_H

#include "core/base/buf.h"

#define FRAMING_METHOD_MAX 32
#define FRAMING_HEAD_MAX (32u * 1024)  /* request line and headers */
#define FRAMING_TARGET_MAX (8u * 1024) /* path and query */
#define FRAMING_VALUE_MAX (8u * 1024)  /* the value of a header that is read */
#define FRAMING_CHUNK_LINE_MAX 1024u   /* a chunk's size and extensions */
#define FRAMING_TRAILER_MAX (8u * 1024)

/* The headers that are read, in the order of framing_header_names. */
enum framing_header {
    FRAMING_HOST,
    FRAMING_CONTENT_LENGTH,
    FRAMING_TRANSFER_ENCODING,
    FRAMING_AUTHORIZATION,
    FRAMING_CONTENT_TYPE,
    FRAMING_CONTENT_ENCODING,
    FRAMING_IDEMPOTENCY_KEY,
    FRAMING_EXPECT,
    FRAMING_IF_MATCH,
    FRAMING_IF_NONE_MATCH,
    FRAMING_HEADERS,
};
extern const char *const framing_header_names[FRAMING_HEADERS];

enum framing_refusal {
    FRAMING_FINE,
    FRAMING_TIMEOUT,
    FRAMING_HEAD_TOO_LARGE,
    FRAMING_TARGET_TOO_LONG,
    FRAMING_CONTROL,
    FRAMING_LINE_END,
    FRAMING_REQUEST_LINE,
    FRAMING_VERSION,
    FRAMING_HEADER_LINE,
    FRAMING_FOLDED,
    FRAMING_NO_HOST,
    FRAMING_LENGTH,
    FRAMING_LENGTH_AND_ENCODING,
    FRAMING_ENCODING,
    FRAMING_OLD_ENCODING,
    FRAMING_CHUNK_SIZE,
    FRAMING_CHUNK_END,
    FRAMING_TRAILER,
    FRAMING_VALUE_TOO_LONG,                                   /* and the header */
    FRAMING_TWICE = FRAMING_VALUE_TOO_LONG + FRAMING_HEADERS, /* and the header */
    FRAMING_REFUSALS = FRAMING_TWICE + FRAMING_HEADERS,
};

/* A request line and its headers. Views. */
struct framing_head {
    struct bytes method, target;
    bool old; /* HTTP/1.0 */
    bool close, keep;
    struct bytes value[FRAMING_HEADERS]; /* data NULL: not given */
    bool chunked;
    uint64_t length;
};

struct framing {
    enum framing_state {
        FRAMING_IN_HEAD,
        FRAMING_IN_BODY,
        FRAMING_IN_CHUNK_SIZE,
        FRAMING_IN_CHUNK,
        FRAMING_BEHIND_CHUNK,
        FRAMING_IN_TRAILER,
        FRAMING_AT_END,
        FRAMING_ENDED, /* after an error, or the last request of this connection: further bytes are dropped */
    } state;
    struct framing_head head;
    enum framing_refusal why; /* the error */
    struct buf line;          /* an incomplete head, line or trailer */
    uint64_t left;            /* of the body or chunk */
    bool last;                /* no request follows this one */
};

enum framing_event {
    FRAMING_NOTHING, /* all input is consumed: more is needed */
    FRAMING_HEAD,    /* f->head is filled, until the next call */
    FRAMING_DATA,    /* a part of the body */
    FRAMING_END,     /* of a request */
    FRAMING_REFUSED, /* an error, f->why; no further events */
};

void framing_open(struct framing *f);
void framing_close(struct framing *f);
/* Parses the next part of *in and advances it. *data: for FRAMING_DATA, a view into the input. */
enum framing_event framing_next(struct framing *f, struct bytes *in, struct bytes *data);
/* Has a request line or header section begun, but not ended? */
bool framing_is_in_head(const struct framing *f);
/* Is the value that word, in any case? */
bool framing_is_word(struct bytes value, const char *word);

/* The error text: what is wrong and what is allowed. Returns out. */
const char *framing_refusal_text(enum framing_refusal why, char out[160]);

#endif
