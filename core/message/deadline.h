/* A point in time after which a message is not published any more: the header x-postdate-deadline, in
 * milliseconds since 1970. It stays on what is delivered, for what consumers refuse is not sent back after it
 * either. Pure. */
#ifndef POSTDATE_CORE_MESSAGE_DEADLINE_H
#define POSTDATE_CORE_MESSAGE_DEADLINE_H

#include "core/base/bytes.h"
#include "core/base/err.h"
#include <stdint.h>

#define DEADLINE_HEADER "x-postdate-deadline"

/* The header of a message that is due at due_ms; *out_ms 0: there is none. headers: a checked table
 * (wire_properties_read). Numbers of the kinds that x-postdate-at has are taken. ERR_REJECT names the
 * header, its value and what is allowed. */
int deadline_read(struct bytes headers, int64_t due_ms, int64_t *out_ms, struct err *e);

/* The same of a message that is on its way already, where nobody can be told: 0 also where there is no
 * point in time. */
int64_t deadline_of(struct bytes headers);

/* ERR_REJECT: a deadline before the due time. what: what it is called where it was given. */
int deadline_check(const char *what, int64_t deadline_ms, int64_t due_ms, struct err *e);

#endif
