#include "core/message/message_id.h"
#include "core/base/random.h"
#include "core/base/timestamp.h"
#include <string.h>

struct message_id message_id_make(int64_t due_ms, const uint8_t random[10])
{
    struct message_id id;
    uint64_t ms = (uint64_t)due_ms;
    for (int i = 5; i >= 0; i--) {
        id.b[i] = (uint8_t)(ms & 0xFF);
        ms >>= 8;
    }
    memcpy(id.b + 6, random, 10);
    id.b[6] = (uint8_t)(0x80 | (id.b[6] & 0x0F)); /* version 8 */
    id.b[8] = (uint8_t)(0x80 | (id.b[8] & 0x3F)); /* variant 10 */
    return id;
}

struct message_id message_id_new(int64_t due_ms)
{
    uint8_t random[10];
    random_fill(random, sizeof random);
    return message_id_make(due_ms, random);
}

struct message_id message_id_move(struct message_id id, int64_t due_ms)
{
    uint8_t random[10];
    memcpy(random, id.b + 6, sizeof random);
    return message_id_make(due_ms, random);
}

struct message_id message_id_least(int64_t due_ms)
{
    static const uint8_t bits[10];
    return message_id_make(due_ms, bits);
}

struct message_id message_id_floor(int64_t due_ms)
{
    static const int64_t end_ms = INT64_C(1) << 48; /* no id is due later */
    struct message_id id = message_id_least(due_ms < 0 ? 0 : due_ms < end_ms ? due_ms : end_ms - 1);
    memset(id.b + 6, 0, sizeof id.b - 6);
    return id;
}

int64_t message_id_due_ms(struct message_id id)
{
    uint64_t ms = 0;
    for (int i = 0; i < 6; i++)
        ms = ms << 8 | id.b[i];
    return (int64_t)ms;
}

int message_id_cell(struct message_id id)
{
    return id.b[7];
}

struct message_id message_id_of_cell(struct message_id id, int number)
{
    id.b[7] = (uint8_t)number;
    return id;
}

bool message_id_equal(struct message_id a, struct message_id b)
{
    return memcmp(a.b, b.b, sizeof(a.b)) == 0;
}

static bool dash_follows(int byte_index)
{
    return byte_index == 3 || byte_index == 5 || byte_index == 7 || byte_index == 9;
}

const char *message_id_format(struct message_id id, char out[MESSAGE_ID_TEXT_SIZE])
{
    static const char hex[] = "0123456789abcdef";
    char *p = out;
    for (int i = 0; i < 16; i++) {
        *p++ = hex[id.b[i] >> 4];
        *p++ = hex[id.b[i] & 0x0F];
        if (dash_follows(i))
            *p++ = '-';
    }
    *p = '\0';
    return out;
}

bool message_id_parse(struct bytes text, struct message_id *out)
{
    if (text.len != MESSAGE_ID_TEXT_SIZE - 1)
        return false;
    struct message_id id;
    const uint8_t *p = text.data;
    for (int i = 0; i < 16; i++) {
        int high = hex_digit(p[0]), low = hex_digit(p[1]);
        if (high < 0 || low < 0)
            return false;
        id.b[i] = (uint8_t)(high << 4 | low);
        p += 2;
        if (dash_follows(i) && *p++ != '-')
            return false;
    }
    *out = id;
    return true;
}

bool message_id_is_ours(struct message_id id)
{
    return (id.b[6] & 0xF0) == 0x80 && (id.b[8] & 0xC0) == 0x80 && message_id_due_ms(id) <= TIMESTAMP_MAX_MS;
}
