/* Short texts that people write: durations, times, sizes, ids, base64. What is understood, written and read
 * again is the same. */
#include "core/base/arena.h"
#include "core/base/base64.h"
#include "core/base/buf.h"
#include "core/base/duration.h"
#include "core/base/timestamp.h"
#include "core/message/message_id.h"
#include "tests/fuzz/fuzz.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void check_duration(const char *text)
{
    struct err e = {0};
    int64_t ms, again;
    char shown[64];
    if (duration_parse(text, &ms, &e) != 0) {
        fuzz_check_err(&e, ERR_REJECT);
        return;
    }
    FUZZ_HOLDS(ms >= 0 && ms <= INT64_C(36525) * DAY_MS);
    duration_format(ms, shown, sizeof(shown));
    FUZZ_HOLDS(duration_parse(shown, &again, &e) == 0 && again == ms);
    FUZZ_HOLDS(strlen(duration_format_human(ms, shown, sizeof(shown))) < sizeof(shown) - 1);
}

static void check_time(const char *text)
{
    struct err e = {0};
    int64_t ms, again;
    char shown[40];
    if (timestamp_parse(text, &ms, &e) != 0) {
        fuzz_check_err(&e, ERR_REJECT);
        return;
    }
    FUZZ_HOLDS(ms >= TIMESTAMP_MIN_MS && ms <= TIMESTAMP_MAX_MS);
    timestamp_format(ms, shown, sizeof(shown));
    FUZZ_HOLDS(timestamp_parse(shown, &again, &e) == 0 && again == ms);
    /* In UTC and without a leap second the seconds read the same. */
    size_t len = strlen(text);
    if (toupper(text[len - 1]) == 'Z' && strncmp(text + 17, "60", 2) != 0 && strncmp(text + 17, "59", 2) != 0)
        FUZZ_HOLDS(strncmp(text + 11, shown + 11, 6) == 0);
}

static void check_size(const char *text)
{
    struct err e = {0};
    uint64_t bytes;
    if (size_parse(text, &bytes, &e) != 0)
        fuzz_check_err(&e, ERR_REJECT);
    else
        FUZZ_HOLDS(bytes < INT64_MAX);
}

static void check_id(struct bytes text)
{
    struct message_id id, again;
    char shown[MESSAGE_ID_TEXT_SIZE];
    if (!message_id_parse(text, &id))
        return;
    FUZZ_HOLDS(text.len == 36);
    message_id_format(id, shown);
    FUZZ_HOLDS(strncasecmp(shown, (const char *)text.data, 36) == 0);
    FUZZ_HOLDS(message_id_parse(bytes_of_str(shown), &again) && message_id_equal(id, again));
    if (message_id_is_ours(id))
        FUZZ_HOLDS(message_id_due_ms(id) >= 0 && message_id_due_ms(id) <= TIMESTAMP_MAX_MS);
}

static void check_base64(struct bytes any)
{
    struct arena arena;
    struct bytes decoded;
    struct buf text;
    arena_init(&arena, (size_t)4 << 20);
    buf_init(&text, (size_t)4 << 20);
    if (base64_decode(any, &arena, &decoded)) { /* one spelling for each value */
        base64_encode(decoded, &text);
        FUZZ_HOLDS(bytes_equal(buf_bytes(&text), any));
    }
    buf_reset(&text);
    base64_encode(any, &text);
    FUZZ_HOLDS(text.len == (any.len + 2) / 3 * 4);
    FUZZ_HOLDS(base64_decode(buf_bytes(&text), &arena, &decoded) && bytes_equal(decoded, any));
    buf_free(&text);
    arena_free(&arena);
}

static void check_printable(struct bytes any)
{
    char shown[80];
    size_t room = any.len > 0 ? any.data[0] % sizeof(shown) : sizeof(shown);
    if (room == 0)
        return;
    memset(shown, 0x7E, sizeof(shown));
    bytes_printable(any, shown, room);
    FUZZ_HOLDS(strlen(shown) < room);
    for (const char *c = shown; *c; c++)
        FUZZ_HOLDS(*c >= ' ' && *c < 0x7F);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes any = bytes_of(data, size);
    char *text = fuzz_text(any);
    check_duration(text);
    check_time(text);
    check_size(text);
    free(text);
    check_id(any);
    check_base64(any);
    check_printable(any);
    return 0;
}
