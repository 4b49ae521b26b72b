/* Headers and properties that SQL users stored as JSON: judged when the message is claimed. */
#include "core/message/wire.h"
#include "gateway/json/json_message.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes text = bytes_of(data, size);
    struct message_record record = {.message = {.due_ms = FUZZ_NOW_MS, .exchange = bytes_of_str("orders")},
                                    .properties_json = text,
                                    .created_ms = FUZZ_NOW_MS,
                                    .settled_ms = -1};
    struct wire_properties p;
    struct err e = {0};
    struct buf raw, shown;
    buf_init(&raw, (size_t)1 << 20);
    buf_init(&shown, (size_t)4 << 20);
    if (json_message_encode(text, &raw, &e) != 0) {
        fuzz_check_err(&e, ERR_REJECT);
        FUZZ_HOLDS(raw.len == 0 && !raw.failed);
        FUZZ_HOLDS(size == 0 || json_message_print(&record, 0, &shown, &e) != 0);
    } else {
        FUZZ_HOLDS(wire_properties_read(buf_bytes(&raw), &p, &e) == 0);
        FUZZ_HOLDS(json_message_print(&record, 0, &shown, &e) == 0);
        FUZZ_HOLDS(bytes_is_text(buf_bytes(&shown)));
    }
    buf_free(&shown);
    buf_free(&raw);
    return 0;
}
