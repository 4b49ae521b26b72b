/* Where HTTP/1.1 requests begin and end, by RFC 9112 and nothing looser. What a client sends is read here and
 * written anew before libmicrohttpd sees it: its versions differ in what else they accept, and what two
 * readers end at two places lets a body run as a request. Pure.
 *
 * What is written: "METHOD / HTTP/1.1", the target as the header Target, only the headers that Postdate uses,
 * each once and at most FRAMING_VALUE_MAX bytes; chunks without extensions and trailers. Refused requests
 * become one with the header Refusal (a body that ends wrongly: a trailer of that name), whose number is an
 * enum framing_refusal, so that the answer goes out in its turn. */
#ifndef POSTDATE_GATEWAY_HTTP_FRAMING_H
#define POSTDATE_GATEWAY_HTTP_FRAMING_H

#include "core/base/buf.h"

#define FRAMING_HEAD_MAX (32u * 1024)  /* request line and headers */
#define FRAMING_TARGET_MAX (8u * 1024) /* path and query */
#define FRAMING_VALUE_MAX (8u * 1024)  /* one header that is used */
#define FRAMING_CHUNK_LINE_MAX 1024u   /* a chunk's size and extensions */
#define FRAMING_TRAILER_MAX (8u * 1024)

#define FRAMING_TARGET "Target"
#define FRAMING_REFUSAL "Refusal"

/* Those that are used, in the order of framing_header_names. */
enum framing_header {
    FRAMING_HOST,
    FRAMING_CONTENT_LENGTH,
    FRAMING_TRANSFER_ENCODING,
    FRAMING_AUTHORIZATION,
    FRAMING_CONTENT_TYPE,
    FRAMING_IDEMPOTENCY_KEY,
    FRAMING_EXPECT,
    FRAMING_IF_MATCH,
    FRAMING_IF_NONE_MATCH,
    FRAMING_HEADERS,
};
extern const char *const framing_header_names[FRAMING_HEADERS];

enum framing_refusal {
    FRAMING_FINE,
    FRAMING_GONE, /* nobody waits for an answer */
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

struct framing {
    enum framing_state {
        FRAMING_IN_HEAD,
        FRAMING_IN_BODY,
        FRAMING_IN_CHUNK_SIZE,
        FRAMING_IN_CHUNK,
        FRAMING_BEHIND_CHUNK,
        FRAMING_IN_TRAILER,
        FRAMING_ENDED, /* refused, or the last request of this connection: the rest is dropped */
    } state;
    struct buf line; /* a head, line or trailer that is not whole */
    uint64_t left;   /* of the body or chunk */
    bool last;       /* no request follows this one */
    uint64_t heads;  /* so many were whole */
};

void framing_open(struct framing *f);
void framing_close(struct framing *f);
/* Takes all of in, in pieces as they come; appends at most 2 * in.len + 32 KiB. */
void framing_feed(struct framing *f, struct bytes in, struct buf *out);
/* The client has begun a request line or headers and not ended them. */
bool framing_is_in_head(const struct framing *f);
bool framing_is_between_requests(const struct framing *f);
/* Ends the head that was begun: a request that is refused takes its place. */
void framing_refuse(struct framing *f, enum framing_refusal why, struct buf *out);

/* The client sends nothing more. What it asked for is answered, and then the connection is closed; false: a
 * body ends before its time, and nobody can answer that. */
bool framing_end(struct framing *f, struct buf *out);

/* What is wrong and what is allowed. */
const char *framing_refusal_text(enum framing_refusal why, char out[160]);

#endif
