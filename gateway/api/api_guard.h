/* The one place where the role of a caller counts, and the log line about each change. Any thread. */
#ifndef POSTDATE_GATEWAY_API_API_GUARD_H
#define POSTDATE_GATEWAY_API_API_GUARD_H

#include "gateway/api/api.h"

/* May the caller do this, whatever the body says? -1: no, and the answer is made. The body need not be there,
 * and is not looked at. */
int api_guard_admit(struct api_request *r);
/* The rest of the question, where the body decides. Only by a thread that may take its time. */
int api_guard_admit_body(struct api_request *r);
/* How long the body of a request may be, of all but a message or a schedule (`large`). */
#define API_SMALL_BODY ((size_t)256 * 1024)
/* Did it change something, or may it have? idle: its thread says that nothing was. */
bool api_is_change(const struct api_request *r, bool idle);
/* One line: who did what, from where, and how it ended. Never a message's content, never a token. */
void api_audit(const struct api_request *r);
/* Says how many were not said, of those whose minute is over, or of all. Now and then. */
void api_audit_flush(bool at_once);

#endif
