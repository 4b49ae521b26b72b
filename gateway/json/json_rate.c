#include "gateway/json/json_rate.h"

#include "core/base/rate.h"
#include "gateway/json/json_message_internal.h"

#include <string.h>

json_t *json_rate_value(const struct rate *r)
{
    char rate[RATE_TEXT_SIZE];
    json_t *o = json_object();
    json_object_set_new(o, "exchange", json_text_value(r->exchange));
    json_object_set_new(o, "routing_key", json_text_value(r->routing_key));
    json_object_set_new(o, "rate", json_string(rate_format(r->per_second, rate)));
    json_object_set_new(o, "burst", json_integer(r->burst));
    json_object_set_new(o, "paused", json_boolean(r->paused));
    json_object_set_new(o, "waiting", json_integer(r->waiting));
    json_object_set_new(o, "drained_at", json_time_value(r->drained_ms));
    json_object_set_new(o, "changed_at", json_time_value(r->changed_ms));
    json_object_set_new(o, "changed_by", json_text_value(r->changed_by));
    return o;
}

static int read_rate(const json_t *v, struct rate *out, struct err *e)
{
    if (!json_is_string(v))
        return json_fail_field("rate", v, "a string, such as \"200/s\", \"12000/min\" or, to pause, \"0\"",
                               e);
    return rate_parse(json_text(v), &out->per_second, e);
}

static int read_burst(const json_t *v, struct rate *out, struct err *e)
{
    json_int_t n = json_integer_value(v);
    if (!json_is_integer(v) || n < 1 || n > RATE_BURST_MAX)
        return json_fail_field("burst", v, "a whole number from 1 to 1000000", e);
    out->burst = (int)n;
    return 0;
}

/* What the address named already, or else is named here. */
static int read_name(const char *name, const json_t *v, struct bytes *out, struct err *e)
{
    struct bytes named;
    if (json_name(name, v, &named, e) != 0)
        return -1;
    if (out->data != NULL && !bytes_equal(named, *out))
        return json_fail_field(name, v, "what is named already", e);
    *out = named;
    return 0;
}

static int read_field(const char *name, const json_t *v, bool all, struct rate *out, struct err *e)
{
    char shown[80];
    if (strcmp(name, "exchange") == 0)
        return read_name(name, v, &out->exchange, e);
    if (strcmp(name, "routing_key") == 0)
        return read_name(name, v, &out->routing_key, e);
    if (all && strcmp(name, "rate") == 0)
        return read_rate(v, out, e);
    if (all && strcmp(name, "burst") == 0)
        return read_burst(v, out, e);
    return err_set(e, ERR_REJECT, "%s: unknown field (allowed: %sexchange, routing_key)",
                   bytes_printable(bytes_of_str(name), shown, sizeof shown), all ? "rate, burst, " : "");
}

static int read_object(const json_t *object, bool all, struct rate *out, struct err *e)
{
    for (void *i = json_object_iter((json_t *)(uintptr_t)object); i != NULL;
         i = json_object_iter_next((json_t *)(uintptr_t)object, i))
        if (read_field(json_object_iter_key(i), json_object_iter_value(i), all, out, e) != 0)
            return -1;
    if (out->routing_key.data == NULL)
        out->routing_key = bytes_of_str(RATE_ANY_KEY);
    return 0;
}

int json_rate_read(const json_t *object, struct rate *out, struct err *e)
{
    if (json_object_get(object, "rate") == NULL)
        return err_set(e, ERR_REJECT, "rate: it is missing (allowed: such as \"200/s\")");
    return read_object(object, true, out, e);
}

int json_rate_read_name(const json_t *object, struct rate *out, struct err *e)
{
    return read_object(object, false, out, e);
}
