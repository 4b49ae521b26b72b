#include "gateway/json/json_dead.h"

#include "core/base/duration.h"
#include "gateway/json/json_message.h"

#include <string.h>

static json_t *id_value(struct message_id id)
{
    char text[MESSAGE_ID_TEXT_SIZE];
    return json_string(message_id_format(id, text));
}

static json_t *attempts_value(const struct dead_letter_record *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->attempt_count; i++)
        json_array_append_new(list, json_pack("{s:o, s:s}", "at", json_time_value(r->attempts[i].at_ms),
                                              "reason", r->attempts[i].reason));
    return list;
}

static void set_content(json_t *o, const struct dead_letter_record *r, const struct wire_properties *w)
{
    json_object_set_new(o, "error", r->error.len > 0 ? json_text_value(r->error) : json_null());
    json_object_set_new(o, "next_at", json_time_value(r->next_ms));
    json_object_set_new(o, "message", r->has_message ? id_value(r->message) : json_null());
    json_object_set_new(o, "attempts", attempts_value(r));
    if (r->state != DEAD_DEAD)
        return;
    json_object_set_new(o, "properties", json_properties_value(w));
    json_object_set_new(o, "headers", json_table_value(w->headers));
    json_body_set(o, r->body);
}

json_t *json_dead_value(const struct dead_letter_record *r, unsigned style, struct err *e)
{
    static const char *const states[] = {
        [DEAD_DEAD] = "dead", [DEAD_WAITING] = "waiting", [DEAD_RETURNED] = "returned"};
    struct wire_properties w = {0};
    bool whole = (style & JSON_STYLE_NO_BODY) == 0;
    if (whole && r->properties.len > 0 && wire_properties_read(r->properties, &w, e) != 0) {
        err_wrap(e, "the stored properties of a dead letter can't be read");
        return NULL;
    }
    json_t *o = json_object();
    json_object_set_new(o, "id", id_value(r->id));
    json_object_set_new(o, "queue", json_text_value(r->queue));
    json_object_set_new(o, "state", json_string(states[r->state]));
    json_object_set_new(o, "reason", json_string(r->reason));
    json_object_set_new(o, "exchange", json_text_value(r->exchange));
    json_object_set_new(o, "routing_key", json_text_value(r->routing_key));
    json_object_set_new(o, "failed", json_integer(r->failed));
    /* Rounds up, as times from the database are. */
    json_object_set_new(o, "died_at", json_time_value(r->died_us < 0 ? -1 : (r->died_us + 999) / 1000));
    json_object_set_new(o, "expires_at", json_time_value(r->expires_ms));
    json_object_set_new(o, "body_bytes", json_integer(r->body_size));
    if (whole)
        set_content(o, r, &w);
    return o;
}

json_t *json_dead_group_value(const struct dead_group *g)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:I, s:o, s:o}", "queue", json_text_value(g->queue), "reason",
                     json_text_value(g->reason), "exchange", json_text_value(g->exchange), "routing_key",
                     json_text_value(g->routing_key), "count", (json_int_t)g->count, "oldest_at",
                     json_time_value(g->oldest_ms), "newest_at", json_time_value(g->newest_ms));
}

static int read_duration(const char *field, const json_t *v, int64_t *out, struct err *e)
{
    struct err why = {0};
    if (!json_is_string(v))
        return json_fail_field(field, v, "a duration as a string, such as \"90s\" or \"1h30m\"", e);
    if (duration_parse(json_c_string(v), out, &why) == 0)
        return 0;
    return err_set(e, ERR_REJECT, "%s: %s", field, why.text);
}

static int read_integer(const char *field, const json_t *v, int *out, struct err *e)
{
    json_int_t n = json_integer_value(v);
    if (!json_is_integer(v) || n < -1 || n > INT32_MAX)
        return json_fail_field(field, v, "a whole number", e);
    *out = (int)n;
    return 0;
}

static int read_on(const json_t *v, unsigned *out, struct err *e)
{
    static const char allowed[] = "an array of rejected, delivery_limit, expired, maxlen";
    *out = 0;
    if (!json_is_array(v))
        return json_fail_field("on", v, allowed, e);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *item = json_array_get(v, i);
        unsigned reason = json_is_string(item) ? death_reason_parse(json_text(item)) : 0;
        if (reason == 0)
            return json_fail_field("on", item, allowed, e);
        *out |= reason;
    }
    return 0;
}

static int read_field(const char *name, const json_t *v, struct retry_policy *p, struct err *e)
{
    if (strcmp(name, "attempts") == 0)
        return read_integer(name, v, &p->attempts, e);
    if (strcmp(name, "jitter") == 0)
        return read_integer(name, v, &p->jitter, e);
    if (strcmp(name, "first") == 0)
        return read_duration(name, v, &p->first_ms, e);
    if (strcmp(name, "max") == 0)
        return read_duration(name, v, &p->max_ms, e);
    if (strcmp(name, "keep_dead") == 0)
        return read_duration(name, v, &p->keep_dead_ms, e);
    if (strcmp(name, "on") == 0)
        return read_on(v, &p->on, e);
    if (strcmp(name, "factor") == 0) {
        p->factor = json_number_value(v);
        return json_is_number(v) ? 0 : json_fail_field(name, v, "a number from 1 to 100", e);
    }
    if (strcmp(name, "pattern") == 0)
        return json_is_string(v) && bytes_equal(json_text(v), p->pattern)
                   ? 0
                   : json_fail_field(name, v, "the pattern in the address", e);
    char shown[80];
    return err_set(e, ERR_REJECT,
                   "%s: unknown field (allowed: attempts, first, factor, max, jitter, on, keep_dead)",
                   bytes_printable(bytes_of_str(name), shown, sizeof shown));
}

int json_policy_read(const json_t *object, struct bytes pattern, struct retry_policy *out, struct err *e)
{
    *out = retry_policy_default;
    out->pattern = pattern;
    for (void *i = json_object_iter((json_t *)(uintptr_t)object); i != NULL;
         i = json_object_iter_next((json_t *)(uintptr_t)object, i))
        if (read_field(json_object_iter_key(i), json_object_iter_value(i), out, e) != 0)
            return -1;
    return retry_policy_check(out, e);
}
