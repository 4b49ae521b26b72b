/* SipHash-2-4: a short keyed hash, for what must not be forged or collide on purpose without the key. Pure.
 * Source: Aumasson, Bernstein, "SipHash: a fast short-input PRF". */
#ifndef POSTDATE_CORE_BASE_SIPHASH_H
#define POSTDATE_CORE_BASE_SIPHASH_H

#include "core/base/bytes.h"
#include <stdint.h>

#define SIPHASH_KEY_SIZE 16

uint64_t siphash(const uint8_t key[SIPHASH_KEY_SIZE], struct bytes text);

#endif
