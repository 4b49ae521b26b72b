#include "core/base/hash.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(struct bytes data, const char *wanted)
{
    uint8_t hash[SHA256_SIZE];
    char text[2 * SHA256_SIZE + 1];
    assert_true(sha256(data, hash));
    for (size_t i = 0; i < SHA256_SIZE; i++)
        snprintf(text + 2 * i, 3, "%02x", hash[i]);
    assert_string_equal(text, wanted);
}

/* Source: NIST's examples for FIPS 180-4, and coreutils' sha256sum for the lengths around a block's end. */
TEST(test_vectors)
{
    check(bytes_of("", 0), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check(bytes_of_str("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check(bytes_of_str("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    char a[1000];
    memset(a, 'a', sizeof a);
    check(bytes_of(a, 55), "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
    check(bytes_of(a, 63), "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34");
    check(bytes_of(a, 64), "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
    check(bytes_of(a, 1000), "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3");
}

TEST(test_equal_sees_every_byte)
{
    uint8_t a[SHA256_SIZE], b[SHA256_SIZE];
    assert_true(sha256(bytes_of_str("x"), a));
    memcpy(b, a, sizeof b);
    assert_true(sha256_equal(a, b));
    for (size_t i = 0; i < SHA256_SIZE; i++) {
        b[i] ^= 1;
        assert_false(sha256_equal(a, b));
        b[i] ^= 1;
    }
}
