/* The arithmetic and names of the ladder: the TTL queues in which RabbitMQ without the delayed-message plugin
 * holds messages. Pure.
 *
 * A delay is counted in grains, rounded up, and written in radix TTL_LADDER_RADIX. Level k has one queue
 * ("rung") per digit d from 1 to radix - 1, in which a message stays d * radix^k grains before it is
 * dead-lettered to level k - 1. So all messages of a queue have the same TTL, its head always expires first,
 * and five levels of 15 queues reach 29 hours in at most five hops.
 *
 * Radix and grain are part of every name: other values make a second ladder, and the first one runs empty.
 * Levels are numbered from below, so a longer window only adds levels. */
#ifndef POSTDATE_CORE_MESSAGE_TTL_LADDER_H
#define POSTDATE_CORE_MESSAGE_TTL_LADDER_H

#include "core/base/bytes.h"
#include "core/base/names.h"
#include <stdbool.h>
#include <stdint.h>

/* 310 days. One more level would exceed RabbitMQ's longest TTL of ten years. */
#define TTL_LADDER_LEVELS_MAX 7
#define TTL_LADDER_MAX_DELAY_MS                                                                              \
    (((int64_t)TTL_LADDER_RADIX * TTL_LADDER_RADIX * TTL_LADDER_RADIX * TTL_LADDER_RADIX *                   \
          TTL_LADDER_RADIX * TTL_LADDER_RADIX * TTL_LADDER_RADIX -                                           \
      1) *                                                                                                   \
     TTL_LADDER_GRAIN_MS)

#define TTL_LADDER_NAME_SIZE NAMES_SIZE /* of any name below, with the NUL */

/* How many levels delays of up to window_ms need: 1..TTL_LADDER_LEVELS_MAX; -1 beyond
 * TTL_LADDER_MAX_DELAY_MS. */
int ttl_ladder_levels(int64_t window_ms);

/* Shortens a delay by up to slack_ms, to whole rungs of level 1 if possible: that saves a hop, in which a
 * message is stored, read and deleted. 0: no delay. */
int64_t ttl_ladder_shorten(int64_t delay_ms, int64_t slack_ms);

/* The digits of a delay, lowest first, rounded up to whole grains (at least one). Returns how many levels it
 * needs, so that digits[result - 1] is not 0; -1 beyond TTL_LADDER_MAX_DELAY_MS. */
int ttl_ladder_digits(int64_t delay_ms, int digits[TTL_LADDER_LEVELS_MAX]);

/* How long a message stays in a rung; digit 1..TTL_LADDER_RADIX - 1. */
int64_t ttl_ladder_ttl_ms(int level, int digit);

/* "postdate.ttl.r16g100.l3": the exchange in front of a level. */
const char *ttl_ladder_exchange(int level);
/* "x-postdate-l3": the header with the level's digit. */
const char *ttl_ladder_header(int level);
/* "postdate.ttl.r16g100.l3.d7". Returns out. */
const char *ttl_ladder_queue(int level, int digit, char out[TTL_LADDER_NAME_SIZE]);

/* Is this queue a rung, of this ladder or of one with another radix or grain? Such names in x-death were
 * added by Postdate's ladder. */
bool ttl_ladder_owns_queue(struct bytes name);

#endif
