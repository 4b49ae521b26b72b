/* The parameters of requests, and filters, which are given as parameters or as an object in the body. */
#include "core/base/timestamp.h"
#include "gateway/api/api_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct bytes api_param(const struct api_params *p, const char *name)
{
    for (size_t i = 0; i < p->count; i++)
        if (bytes_equal_str(p->list[i].name, name))
            return p->list[i].value;
    return (struct bytes){0};
}

/* "key, exchange" */
static const char *list_names(const char *names, char out[200])
{
    size_t used = 0;
    for (names += strspn(names, " "); *names != '\0' && used < 198; names++) {
        if (*names == ' ')
            out[used++] = ',';
        out[used++] = *names;
    }
    out[used] = '\0';
    return out;
}

int api_params_check(const struct api_params *p, const char *names, struct err *e)
{
    char shown[80], allowed[200];
    list_names(names, allowed);
    for (size_t i = 0; i < p->count; i++) {
        const struct api_param *one = &p->list[i];
        bytes_printable(one->name, shown, sizeof shown);
        if (!bytes_is_among(one->name, names))
            return err_set(e, ERR_REJECT, "unknown parameter \"%s\": %s%s", shown,
                           *allowed != '\0' ? "allowed are " : "none is allowed here", allowed);
        if (!bytes_is_text(one->value))
            return err_set(e, ERR_REJECT, "parameter %s is not UTF-8 text without NUL", shown);
        for (size_t k = 0; k < i; k++)
            if (bytes_equal(p->list[k].name, one->name))
                return err_set(e, ERR_REJECT, "parameter %s is given twice", shown);
    }
    return 0;
}

int api_params_of(const json_t *filter, struct api_params *out, const char *names, struct err *e)
{
    char shown[JSON_SHOW_SIZE];
    const char *name;
    json_t *v;
    out->count = 0;
    if (!json_is_object(filter))
        return err_set(e, ERR_REJECT, "filter: write an object");
    json_object_foreach((json_t *)(uintptr_t)filter, name, v)
    {
        /* null, too: a condition that somebody's variable had no value for must not become "all messages". */
        if (!json_is_string(v) || out->count == API_PARAMS_MAX)
            return err_set(e, ERR_REJECT, "filter.%s: %s is not a string",
                           bytes_printable(bytes_of_str(name), shown, sizeof shown),
                           json_is_string(v) ? "it" : "this");
        out->list[out->count++] = (struct api_param){bytes_of_str(name), json_text(v)};
    }
    return api_params_check(out, names, e);
}

bool api_param_text(const struct api_params *p, const char *name, char out[API_PARAM_SIZE])
{
    struct bytes v = api_param(p, name);
    size_t most = API_PARAM_SIZE - 4;
    if (v.data == NULL)
        return false;
    snprintf(out, API_PARAM_SIZE, "%.*s%s", (int)(v.len < most ? v.len : most), (const char *)v.data,
             v.len > most ? "..." : "");
    return true;
}

int api_param_time(const struct api_params *p, const char *name, int64_t *out, struct err *e)
{
    char text[API_PARAM_SIZE];
    if (!api_param_text(p, name, text))
        return 0;
    /* A + that was not percent-encoded came as a blank. */
    char *blank = strlen(text) > 19 ? strchr(text + 19, ' ') : NULL;
    if (blank != NULL)
        *blank = '+';
    return timestamp_parse(text, out, e) == 0 ? 0 : err_wrap(e, "%s", name);
}

int api_param_number(const struct api_params *p, const char *name, int64_t most, int64_t *out, struct err *e)
{
    struct bytes v = api_param(p, name);
    char shown[40];
    if (v.data == NULL)
        return 0;
    *out = 0;
    for (size_t i = 0; i < v.len && *out <= most; i++)
        *out = v.data[i] >= '0' && v.data[i] <= '9' ? *out * 10 + v.data[i] - '0' : most + 1;
    if (*out >= 1 && *out <= most)
        return 0;
    return err_set(e, ERR_REJECT, "%s: \"%s\" is not a number from 1 to %" PRId64, name,
                   bytes_printable(v, shown, sizeof shown), most);
}

int api_param_name(const struct api_params *p, const char *name, struct bytes *out, struct err *e)
{
    *out = api_param(p, name);
    if (out->len <= MESSAGE_NAME_MAX)
        return 0;
    return err_set(e, ERR_REJECT, "%s: is %zu bytes long: allowed are up to %d", name, out->len,
                   MESSAGE_NAME_MAX);
}

int api_filter_read(const struct api_params *p, struct lookup_filter *f, struct err *e)
{
    char text[16], shown[80];
    struct bytes state = api_param(p, "state");
    *f = (struct lookup_filter){.due_before_ms = TIMESTAMP_MAX_MS,
                                .retrying = bytes_equal_str(state, LOOKUP_RETRYING),
                                .waiting = bytes_equal_str(state, LOOKUP_WAITING)};
    f->has_state = state.data != NULL && !f->retrying && !f->waiting;
    if (api_param_name(p, "exchange", &f->exchange, e) != 0 ||
        api_param_name(p, "routing_key", &f->routing_key, e) != 0 ||
        api_param_name(p, "key", &f->key, e) != 0 ||
        api_param_time(p, "due_after", &f->due_after_ms, e) != 0 ||
        api_param_time(p, "due_before", &f->due_before_ms, e) != 0)
        return -1;
    if (f->key.data != NULL && f->key.len == 0)
        return err_set(e, ERR_REJECT, "key: is empty: allowed are 1 to %d bytes, or leave it out",
                       MESSAGE_NAME_MAX);
    if (!f->has_state)
        return 0;
    snprintf(text, sizeof text, "%.*s", (int)(state.len < 15 ? state.len : 15), (const char *)state.data);
    if (state.len < 15 && message_state_parse(text, &f->state) == 0)
        return 0;
    return err_set(e, ERR_REJECT,
                   "state: \"%s\" is none: allowed are scheduled, claimed, handed, delivered, cancelled, "
                   "superseded, failed, expired, " LOOKUP_RETRYING ", " LOOKUP_WAITING,
                   bytes_printable(state, shown, sizeof shown));
}
