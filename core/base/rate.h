/* Rates as users write them: a number per second, minute, hour or day. Pure. */
#ifndef POSTDATE_CORE_BASE_RATE_H
#define POSTDATE_CORE_BASE_RATE_H

#include "core/base/bytes.h"
#include "core/base/err.h"

#define RATE_MIN 0.0001 /* a second */
#define RATE_MAX 1000000.0
#define RATE_BURST_MAX 1000000 /* messages at once */

/* "200/s", "1.5/second", "12000/min", "100/h", "10/d", or "0": paused. The result is 0, or from RATE_MIN to
 * RATE_MAX a second. ERR_REJECT names the text and what is allowed. */
int rate_parse(struct bytes text, double *out_per_second, struct err *e);

#define RATE_LENGTH_MAX 40 /* bytes of a text that is parsed */

#endif
