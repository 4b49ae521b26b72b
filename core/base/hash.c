#include "core/base/hash.h"

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

/* --- SipHash */

static uint64_t rotate_left(uint64_t x, int b)
{
    return x << b | x >> (64 - b);
}

static uint64_t read_le(const uint8_t *p, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static void round_once(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotate_left(v[1], 13) ^ v[0];
    v[0] = rotate_left(v[0], 32);
    v[2] += v[3];
    v[3] = rotate_left(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotate_left(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotate_left(v[1], 17) ^ v[2];
    v[2] = rotate_left(v[2], 32);
}

static void absorb_word(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    round_once(v);
    round_once(v);
    v[0] ^= word;
}

uint64_t siphash(const uint8_t key[SIPHASH_KEY_SIZE], struct bytes text)
{
    uint64_t k0 = read_le(key, 8), k1 = read_le(key + 8, 8);
    uint64_t v[4] = {k0 ^ UINT64_C(0x736f6d6570736575), k1 ^ UINT64_C(0x646f72616e646f6d),
                     k0 ^ UINT64_C(0x6c7967656e657261), k1 ^ UINT64_C(0x7465646279746573)};
    size_t whole = text.len / 8 * 8;
    for (size_t i = 0; i < whole; i += 8)
        absorb_word(v, read_le(text.data + i, 8));
    uint64_t last = (uint64_t)(text.len & 0xff) << 56;
    if (text.len > whole)
        last |= read_le(text.data + whole, text.len - whole);
    absorb_word(v, last);
    v[2] ^= 0xff;
    for (int i = 0; i < 4; i++)
        round_once(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
