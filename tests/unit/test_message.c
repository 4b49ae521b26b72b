#include "core/base/random.h"
#include "core/base/timestamp.h"
#include "core/message/message.h"
#include "core/message/message_id.h"
#include "tests/unit/unit.h"
#include <string.h>

TEST(test_state_names)
{
    static const char *const names[] = {"scheduled", "claimed",    "handed", "delivered",
                                        "cancelled", "superseded", "failed", "expired"};
    for (unsigned i = 0; i < COUNT_OF(names); i++) {
        enum message_state s;
        assert_string_equal(message_state_name((enum message_state)i), names[i]);
        assert_int_equal(message_state_parse(names[i], &s), 0);
        assert_int_equal(s, i);
    }
    enum message_state s;
    assert_int_equal(message_state_parse("Scheduled", &s), -1);
    assert_int_equal(message_state_parse("", &s), -1);
}

TEST(test_size)
{
    struct message m = {
        .exchange = bytes_of("ab", 2), .routing_key = bytes_of("c", 1), .body = bytes_of("12345", 5)};
    assert_int_equal(message_size(&m), 8);
}

TEST(test_id_carries_due)
{
    static const int64_t dues[] = {0, 1, INT64_C(1795334400123), TIMESTAMP_MAX_MS};
    static const uint8_t fills[] = {0x00, 0xFF, 0xA5};
    for (size_t i = 0; i < COUNT_OF(dues); i++) {
        for (size_t k = 0; k < COUNT_OF(fills); k++) {
            uint8_t random[10];
            char text[MESSAGE_ID_TEXT_SIZE];
            struct message_id parsed;
            memset(random, fills[k], sizeof(random));
            struct message_id id = message_id_make(dues[i], random);
            assert_true(message_id_due_ms(id) == dues[i]);
            assert_true(message_id_is_ours(id));
            assert_int_equal(strlen(message_id_format(id, text)), 36);
            assert_int_equal(text[14], '8');
            assert_non_null(strchr("89ab", text[19]));
            assert_true(message_id_parse(bytes_of_str(text), &parsed));
            assert_true(message_id_equal(id, parsed));
            struct message_id least = message_id_least(dues[i]);
            assert_true(memcmp(least.b, id.b, sizeof id.b) <= 0);
        }
    }
}

TEST(test_id_layout)
{
    static const uint8_t random[10] = {0xF1, 0x22, 0xF3, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xAA};
    char text[MESSAGE_ID_TEXT_SIZE];
    message_id_format(message_id_make(INT64_C(0x0123456789AB), random), text);
    assert_string_equal(text, "01234567-89ab-8122-b344-5566778899aa");
}

TEST(test_id_parse_is_strict)
{
    static const struct {
        const char *text;
        bool parses, ours;
    } table[] = {
        {"01234567-89ab-8122-b344-5566778899aa", true, true},
        {"01234567-89AB-8122-B344-5566778899AA", true, true},
        {"01234567-89ab-4122-b344-5566778899aa", true, false},
        {"01234567-89ab-8122-c344-5566778899aa", true, false},
        {"ffffffff-ffff-8122-b344-5566778899aa", true, false}, /* due after 9999 */
        {"", false, false},
        {"01234567-89ab-8122-b344-5566778899a", false, false},
        {"01234567-89ab-8122-b344-5566778899aaa", false, false},
        {"0123456789ab-8122-b344-5566778899aa00", false, false},
        {"01234567_89ab-8122-b344-5566778899aa", false, false},
        {"0123456g-89ab-8122-b344-5566778899aa", false, false},
        {"{1234567-89ab-8122-b344-5566778899a}", false, false},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        struct message_id id;
        bool parses = message_id_parse(bytes_of_str(table[i].text), &id);
        assert_int_equal(parses, table[i].parses);
        if (parses)
            assert_int_equal(message_id_is_ours(id), table[i].ours);
    }
}

TEST(test_random_does_not_repeat)
{
    uint8_t before[16] = {0}, now[16];
    for (int i = 0; i < 1000; i++) {
        random_fill(now, sizeof(now));
        assert_memory_not_equal(now, before, sizeof(now));
        memcpy(before, now, sizeof(now));
    }
    random_fill(now, 0);
    assert_memory_equal(now, before, sizeof(now));
    assert_false(random_u32() == random_u32() && random_u32() == random_u32());
}
