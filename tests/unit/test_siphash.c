#include "core/base/hash.h"
#include "tests/unit/unit.h"

/* Source: the reference implementation's vectors, key 00..0f, text 00, 0001, … */
TEST(test_vectors)
{
    static const struct {
        size_t len;
        uint64_t hash;
    } vectors[] = {
        {0, UINT64_C(0x726fdb47dd0e0e31)},  {1, UINT64_C(0x74f839c593dc67fd)},
        {7, UINT64_C(0xab0200f58b01d137)},  {8, UINT64_C(0x93f5f5799a932462)},
        {15, UINT64_C(0xa129ca6149be45e5)},
    };
    uint8_t key[16], text[16];
    for (uint8_t i = 0; i < 16; i++)
        key[i] = text[i] = i;
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++)
        assert_true(siphash(key, bytes_of(text, vectors[i].len)) == vectors[i].hash);
    key[3] ^= 1;
    assert_true(siphash(key, bytes_of(text, 15)) != vectors[4].hash);
}
