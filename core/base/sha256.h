/* SHA-256, by OpenSSL. Pure. */
#ifndef POSTDATE_CORE_BASE_SHA256_H
#define POSTDATE_CORE_BASE_SHA256_H

#include "core/base/bytes.h"
#include <stdbool.h>
#include <stdint.h>

#define SHA256_SIZE 32

/* False: no memory; out says nothing then. */
bool sha256(struct bytes data, uint8_t out[SHA256_SIZE]);

/* Takes as long whatever the two contain. */
bool sha256_equal(const uint8_t a[SHA256_SIZE], const uint8_t b[SHA256_SIZE]);

#endif
