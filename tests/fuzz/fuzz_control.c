/* A request of the control queue: JSON in a message, with message-id, reply-to and correlation-id. First
 * line: what the database will answer; second to fourth: these properties; then the body. With a first byte
 * of 'R' the second line is raw properties. */
#include "core/message/wire.h"
#include "gateway/control/control_request.h"
#include "gateway/json/json_message.h"
#include "gateway/ops/api_operation.h"
#include "tests/fuzz/database.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

/* Who asks is tested with live tokens; here every third caller has a scope. */
static const struct bytes exchange = {(const uint8_t *)"orders", 6};
static const struct api_scope scope = {
    .principal = "fuzz", .name = "fuzz", .exchanges = {.exchanges = &exchange, .count = 1}};

int tokens_admit(struct tokens *t, struct bytes token, struct tokens_grant *out, struct api_answer *a)
{
    (void)t, (void)a;
    out->scope = token.len % 3 == 1 ? &scope : NULL;
    return 0;
}

void tokens_release(struct tokens_grant *grant)
{
    grant->scope = NULL;
}

static struct bytes text_property(struct bytes *in)
{
    struct bytes line = fuzz_take_line(in);
    return bytes_of(line.data, line.len < 255 ? line.len : 255);
}

static void put_properties(struct bytes *in, bool is_raw, struct buf *out)
{
    if (is_raw) {
        buf_put_bytes(out, fuzz_take_line(in));
        return;
    }
    struct wire_properties p = {.flags = WIRE_MESSAGE_ID | WIRE_REPLY_TO | WIRE_CORRELATION_ID};
    p.message_id = text_property(in);
    p.reply_to = text_property(in);
    p.correlation_id = text_property(in);
    wire_properties_write(&p, out);
}

static void check_reply(const struct control_request *o)
{
    struct wire_properties p;
    struct buf properties, body;
    buf_init(&properties, 4096);
    buf_init(&body, API_ANSWER_MAX);
    bool wanted = control_request_answer(o, "postdate.intake", &properties, &body);
    FUZZ_HOLDS(!wanted || o->reply_to.len > 0);
    FUZZ_HOLDS(!wanted || !bytes_start_with_str(o->reply_to, "postdate."));
    if (wanted) {
        FUZZ_HOLDS(wire_properties_read(buf_bytes(&properties), &p, NULL) == 0);
        FUZZ_HOLDS(bytes_equal(p.correlation_id, o->correlation_id));
        json_t *object =
            json_loadb((const char *)body.data, body.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
        FUZZ_HOLDS(json_integer_value(json_object_get(object, "status")) == o->api.answer.status);
        json_decref(object);
    }
    buf_free(&body);
    buf_free(&properties);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes rest = bytes_of(data, size);
    bool is_raw = size > 0 && data[0] == 'R';
    struct control_request *o = control_request_open(NULL);
    struct buf properties;
    FUZZ_HOLDS(o != NULL);
    database_script(fuzz_take_line(&rest));
    buf_init(&properties, 65536);
    put_properties(&rest, is_raw, &properties);
    uint8_t *body = fuzz_copy(rest);
    struct broker_event event = {.kind = BROKER_EVENT_DELIVERY,
                                 .tag = 1,
                                 .properties = buf_bytes(&properties),
                                 .body = bytes_of(body, rest.len)};
    if (control_request_read(o, &event) == 0) {
        FUZZ_HOLDS(control_request_admit(o, NULL) == 0);
        FUZZ_HOLDS(!o->api.op->needs_key || o->api.idempotency_key.len > 0);
        database_run(&o->api);
    } else {
        FUZZ_HOLDS(o->api.answer.status >= 400 && o->api.answer.status < 500);
    }
    check_reply(o);
    control_request_close(o);
    buf_free(&properties);
    free(body);
    return 0;
}
