#include "gateway/json/json_text.h"

#include "core/message/message.h"
#include <string.h>

const char *json_show(const json_t *value, char out[JSON_SHOW_SIZE])
{
    char text[256];
    size_t len = json_dumpb(value, text, sizeof text, JSON_COMPACT | JSON_ENCODE_ANY);
    if (len == 0 || len > sizeof text) {
        const char *what = json_is_object(value)  ? "an object"
                           : json_is_array(value) ? "an array"
                                                  : "a long text";
        return bytes_printable(bytes_of_str(what), out, JSON_SHOW_SIZE);
    }
    return bytes_printable(bytes_of(text, len), out, JSON_SHOW_SIZE);
}

struct bytes json_text(const json_t *string)
{
    return bytes_of(json_string_value(string), json_string_length(string));
}

const char *json_c_string(const json_t *string)
{
    const char *text = json_string_value(string);
    return text != NULL && strlen(text) == json_string_length(string) ? text : "";
}

static int append(const char *text, size_t len, void *out)
{
    buf_put(out, text, len);
    return 0;
}

int json_put(const json_t *value, size_t flags, struct buf *out)
{
    return value == NULL || json_dump_callback(value, append, out, flags) != 0 || out->failed ? -1 : 0;
}

int json_name(const char *field, const json_t *value, struct bytes *out, struct err *e)
{
    char shown[JSON_SHOW_SIZE];
    if (!json_is_string(value))
        return err_set(e, ERR_REJECT, "%s: %s is not a string", field, json_show(value, shown));
    *out = json_text(value);
    if (out->len > MESSAGE_NAME_MAX)
        return err_set(e, ERR_REJECT, "%s: is %zu bytes long: allowed are up to %d", field, out->len,
                       MESSAGE_NAME_MAX);
    if (!bytes_is_text(*out))
        return err_set(e, ERR_REJECT, "%s: %s holds a NUL character, which is not allowed", field,
                       json_show(value, shown));
    return 0;
}

int json_fail_field(const char *field, const json_t *v, const char *allowed, struct err *e)
{
    char shown[JSON_SHOW_SIZE];
    return err_set(e, ERR_REJECT, "%s: %s is wrong (allowed: %s)", field, json_show(v, shown), allowed);
}
