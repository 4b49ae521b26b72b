/* Standard base64 (RFC 4648, section 4). Pure. */
#ifndef POSTDATE_CORE_BASE_BASE64_H
#define POSTDATE_CORE_BASE_BASE64_H

#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/bytes.h"
#include <stdbool.h>

void base64_encode(struct bytes in, struct buf *out);

/* Strict: the standard alphabet with padding, no blanks. *out lies in the arena. False when text is not
 * base64; then out->len is 0. Out of memory: true with out->data NULL and out->len not 0. */
bool base64_decode(struct bytes text, struct arena *a, struct bytes *out);

#endif
