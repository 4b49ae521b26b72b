/* The one place where the role of a caller counts, and the log line about each change. Any thread. */
#ifndef POSTDATE_GATEWAY_API_API_GUARD_H
#define POSTDATE_GATEWAY_API_API_GUARD_H

#include "gateway/api/api.h"

/* May the caller do this? -1: no, and the answer is made. The body is there. */
int api_guard_admit(struct api_request *r);
/* Did it change something, or may it have? idle: its thread says that nothing was. */
bool api_is_change(const struct api_request *r, bool idle);
/* One line: who did what, from where, and how it ended. Never a message's content, never a token. */
void api_audit(const struct api_request *r);

#endif
