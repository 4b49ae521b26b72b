/* The ids of what happened lately, and when: a ring of a fixed size that forgets the oldest. Not
 * thread-safe. */
#ifndef POSTDATE_CORE_RECENT_H
#define POSTDATE_CORE_RECENT_H

#include "core/message_id.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct recent_item {
    int64_t at_ms;
    struct message_id id;
};

struct recent {
    struct recent_item *items;
    size_t max, count, next;
};

/* Room for max > 0 ids, 24 bytes each; untouched memory is not used. -1: out of memory. */
int recent_open(struct recent *r, size_t max);
void recent_close(struct recent *r);
/* at_ms: on the caller's clock, never less than that of an earlier one. */
void recent_add(struct recent *r, struct message_id id, int64_t at_ms);
/* Puts those since from_ms (inclusive) into out, the latest first, most of them at most. Returns how many. */
size_t recent_since(const struct recent *r, int64_t from_ms, struct message_id *out, size_t most);
/* May some since from_ms have been forgotten already? */
bool recent_forgot(const struct recent *r, int64_t from_ms);

#endif
