/* The arithmetic and the names of the ladder of TTL queues on which RabbitMQ without the delayed-message
 * plugin waits. Pure.
 *
 * A wait is counted in grains, rounded up, and written in radix LADDER_RADIX. Level k has one queue ("rung")
 * per digit d from 1 to radix - 1, in which a message stays d * radix^k grains; then it goes on to level
 * k - 1. So every message of a queue waits equally long, its head is always the next to leave, and five
 * levels of 15 queues reach to 29 hours in at most five hops.
 *
 * Radix and grain are part of every name: another choice makes another ladder beside this one, which then
 * runs empty. Levels are numbered from below, so a longer window only adds levels on top of those that
 * exist. */
#ifndef POSTDATE_CORE_MESSAGE_LADDER_H
#define POSTDATE_CORE_MESSAGE_LADDER_H

#include "core/base/bytes.h"
#include <stdbool.h>
#include <stdint.h>

/* Plain numbers, they become part of names. With -D other ladders can be measured. */
#ifndef LADDER_RADIX
#define LADDER_RADIX 16
#define LADDER_GRAIN_MS 100
#endif

/* 310 days. One more, and its longest TTL would exceed the ten years that RabbitMQ takes. */
#define LADDER_LEVELS_MAX 7
#define LADDER_MAX_DELAY_MS                                                                                  \
    (((int64_t)LADDER_RADIX * LADDER_RADIX * LADDER_RADIX * LADDER_RADIX * LADDER_RADIX * LADDER_RADIX *     \
          LADDER_RADIX -                                                                                     \
      1) *                                                                                                   \
     LADDER_GRAIN_MS)

#define LADDER_NAME_SIZE 64 /* of any name below, with the NUL */

/* How many levels waits of up to window_ms need: 1..LADDER_LEVELS_MAX; -1 beyond LADDER_MAX_DELAY_MS. */
int ladder_levels(int64_t window_ms);
/* The longest wait that so many levels can do. */
int64_t ladder_max_delay_ms(int levels);

/* The digits of a wait, lowest first, rounded up to whole grains (at least one: there is no wait of nothing).
 * Returns how many levels it needs, so that digits[result - 1] is not 0; -1 beyond LADDER_MAX_DELAY_MS. */
int ladder_digits(int64_t delay_ms, int digits[LADDER_LEVELS_MAX]);

/* How long a message stays in a rung; digit 1..LADDER_RADIX - 1. */
int64_t ladder_ttl_ms(int level, int digit);

/* "postdate.ttl.r16g100.l3": the exchange in front of a level. */
const char *ladder_exchange(int level);
/* "x-postdate-l3": the header with the level's digit. */
const char *ladder_header(int level);
/* "postdate.ttl.r16g100.l3.d7". Returns out. */
const char *ladder_queue(int level, int digit, char out[LADDER_NAME_SIZE]);

/* Is this queue a rung, of this ladder or one with another radix or grain? Such names in x-death come from
 * us. */
bool ladder_owns_queue(struct bytes name);

#endif
