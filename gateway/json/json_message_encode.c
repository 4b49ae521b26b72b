/* Properties that SQL stored as JSON, to AMQP bytes. */
#include "gateway/json/json_memory.h"
#include "gateway/json/json_message_internal.h"

/* The SQL functions count more strictly; this only bounds memory. */
#define ENCODED_MAX ((size_t)512 * 1024)

static const json_t *member(const json_t *object, const char *name)
{
    const json_t *v = json_object_get(object, name);
    return json_is_null(v) ? NULL : v;
}

int json_message_encode(struct bytes json, struct buf *out, struct err *e)
{
    const struct accept_rules rules = {.max_properties = ENCODED_MAX};
    struct json_parser p;
    json_error_t why;
    char shown[120];
    bool no_memory;
    json_t *object = json_memory_load(json, 0, &no_memory, &why);
    if (no_memory)
        return err_set(e, ERR_BUG, "out of memory for the headers and properties of a message");
    if (object == NULL)
        return err_set(e, ERR_REJECT, "the stored headers are not valid JSON: %s",
                       bytes_printable(bytes_of_str(why.text), shown, sizeof shown));
    json_parser_init(&p, &rules);
    int rc = json_properties_build(&p, member(object, "properties"), member(object, "headers"), NULL, e);
    if (rc == 0) {
        buf_put_bytes(out, buf_bytes(&p.properties));
        if (out->failed)
            rc = err_set(e, ERR_BUG, "out of memory for %zu bytes of properties", p.properties.len);
    }
    json_parser_free(&p);
    json_decref(object);
    return rc;
}
