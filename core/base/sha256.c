#include "core/base/sha256.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

bool sha256(struct bytes data, uint8_t out[SHA256_SIZE])
{
    return SHA256(data.data, data.len, out) != NULL;
}

bool sha256_equal(const uint8_t a[SHA256_SIZE], const uint8_t b[SHA256_SIZE])
{
    return CRYPTO_memcmp(a, b, SHA256_SIZE) == 0;
}
