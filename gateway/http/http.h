/* The HTTP interface: sockets and HTTP/1.1 in front of the executor (gateway/ops/executor.h), which does the
 * work.
 *
 * One thread, the front, parses requests strictly (framing.h), routes them, sends answers, and closes
 * connections that take longer than http.timeout for a request or answer, even if bytes still arrive.
 * Requests in the executor occupy no thread. */
#ifndef POSTDATE_GATEWAY_HTTP_HTTP_H
#define POSTDATE_GATEWAY_HTTP_HTTP_H

#include "core/base/err.h"
#include "gateway/ops/executor.h"
#include "gateway/runtime/runtime.h"

struct http;
struct tokens;

/* Listens as configured and starts its threads; the executor and the tokens (NULL: http.tokens is off) must
 * outlive it. NULL: ERR_CONFIG when the address can't be used (text names it), ERR_BUG. */
struct http *http_open(struct runtime *rt, struct executor *executor, struct tokens *tokens, struct err *e);
/* The address on which it listens: "127.0.0.1:8480". */
const char *http_address(const struct http *h);
/* From now on new requests are refused (503), while answers are still sent. */
void http_drain(struct http *h);
/* After executor_stop, when the executor has no request. */
void http_close(struct http *h);

#endif
