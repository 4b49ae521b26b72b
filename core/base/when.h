/* Points in time as users write them on a command line: in words, in this machine's time zone (TZ). */
#ifndef POSTDATE_CORE_BASE_WHEN_H
#define POSTDATE_CORE_BASE_WHEN_H

#include "core/base/err.h"
#include <stdbool.h>
#include <stdint.h>

/* RFC 3339 with an offset; or `now`; `+D` and `-D`, a duration from now; `HH:MM[:SS]`, the next occurrence of
 * that time of day; `today`, `tomorrow` or a day of the week (the next one, never today) with `HH:MM[:SS]`.
 * now_ms is the value of "now". *in_words: text was not RFC 3339. ERR_REJECT names the text and what is
 * allowed, also for a local time that a change of clocks skips. A local time that a change of clocks repeats
 * is resolved as by mktime(3). Not thread-safe: it reads TZ. */
int when_parse(const char *text, int64_t now_ms, int64_t *out_ms, bool *in_words, struct err *e);

#endif
