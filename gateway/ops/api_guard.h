/* Checks the role of callers, and logs each change. Any thread. */
#ifndef POSTDATE_GATEWAY_OPS_API_GUARD_H
#define POSTDATE_GATEWAY_OPS_API_GUARD_H

#include "gateway/ops/api.h"

/* May the caller do this, independent of the body, which is not read? -1: no, and the answer is made. */
int api_guard_admit(struct api_request *r);
/* The rest of the check, which depends on the body. Only from a thread that may block. */
int api_guard_admit_body(struct api_request *r);
/* The largest body of a request that is neither a message nor a schedule (`large`), in bytes. */
#define API_SMALL_BODY ((size_t)256 * 1024)
/* Did the request change something, or may it have? idle: its thread reported that nothing was changed. */
bool api_is_change(const struct api_request *r, bool idle);
/* Logs one line: caller, operation, address, result. Never a message's content or a token. */
void api_audit(const struct api_request *r);
/* Logs how many lines were suppressed, for callers whose minute is over, or for all. Call it now and then. */
void api_audit_flush(bool at_once);

#endif
