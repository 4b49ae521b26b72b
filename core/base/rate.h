/* Rates as people write them: how many a second, a minute, an hour or a day. Pure. */
#ifndef POSTDATE_CORE_BASE_RATE_H
#define POSTDATE_CORE_BASE_RATE_H

#include "core/base/bytes.h"
#include "core/base/err.h"

#define RATE_MIN 0.0001 /* a second */
#define RATE_MAX 1000000.0

/* "200/s", "1.5/second", "12000/min", "100/h", "10/d", or "0": none at all. The result is 0, or from RATE_MIN
 * to RATE_MAX a second. ERR_REJECT names the text and what is allowed. */
int rate_parse(struct bytes text, double *out_per_second, struct err *e);

#define RATE_LENGTH_MAX 40 /* bytes of one that is read */

/* The shortest of the units in which it is at least one and has two decimals at most: "200/s", "30/min",
 * "100/h", "0"; where there is none, as exactly as nine digits can say. */
#define RATE_TEXT_SIZE 40
const char *rate_format(double per_second, char out[RATE_TEXT_SIZE]);

#endif
