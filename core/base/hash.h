/* Hashes: SHA-256, by OpenSSL, and SipHash-2-4, a short keyed hash, which nobody without the key can forge or
 * make collide. Pure. Source: Aumasson, Bernstein, "SipHash: a fast short-input PRF". */
#ifndef POSTDATE_CORE_BASE_HASH_H
#define POSTDATE_CORE_BASE_HASH_H

#include "core/base/bytes.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHA256_SIZE 32
#define SIPHASH_KEY_SIZE 16

/* False: out of memory; out is undefined. */
bool sha256(struct bytes data, uint8_t out[SHA256_SIZE]);

/* In constant time. */
bool sha256_equal(const uint8_t a[SHA256_SIZE], const uint8_t b[SHA256_SIZE]);

uint64_t siphash(const uint8_t key[SIPHASH_KEY_SIZE], struct bytes text);

#endif
