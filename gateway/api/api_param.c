/* The parameters of requests. */
#include "core/base/timestamp.h"
#include "gateway/api/api_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct bytes api_param(const struct api_request *r, const char *name)
{
    for (size_t i = 0; i < r->param_count; i++)
        if (bytes_equal_str(r->params[i].name, name))
            return r->params[i].value;
    return (struct bytes){0};
}

static bool is_among(struct bytes name, const char *const names[])
{
    for (; *names != NULL; names++)
        if (bytes_equal_str(name, *names))
            return true;
    return false;
}

int api_params_check(struct api_request *r, const char *const names[])
{
    char shown[80], allowed[200] = "";
    size_t used = 0;
    for (size_t i = 0; names[i] != NULL && used < sizeof allowed; i++)
        used += (size_t)snprintf(allowed + used, sizeof allowed - used, "%s%s", i > 0 ? ", " : "", names[i]);
    for (size_t i = 0; i < r->param_count; i++) {
        const struct api_param *p = &r->params[i];
        bytes_printable(p->name, shown, sizeof shown);
        if (!is_among(p->name, names)) {
            api_fail(&r->answer, API_INVALID_REQUEST, "unknown parameter \"%s\": %s%s", shown,
                     used > 0 ? "allowed are " : "none is allowed here", allowed);
            return -1;
        }
        if (!bytes_is_text(p->value)) {
            api_fail(&r->answer, API_INVALID_REQUEST, "parameter %s is not UTF-8 text", shown);
            return -1;
        }
        for (size_t k = 0; k < i; k++) {
            if (bytes_equal(r->params[k].name, p->name)) {
                api_fail(&r->answer, API_INVALID_REQUEST, "parameter %s is given twice", shown);
                return -1;
            }
        }
    }
    return 0;
}

bool api_takes_nothing(struct api_request *r)
{
    return api_params_check(r, (const char *const[]){NULL}) == 0;
}

bool api_param_text(const struct api_request *r, const char *name, char out[API_PARAM_SIZE])
{
    struct bytes v = api_param(r, name);
    size_t most = API_PARAM_SIZE - 4;
    if (v.data == NULL)
        return false;
    snprintf(out, API_PARAM_SIZE, "%.*s%s", (int)(v.len < most ? v.len : most), (const char *)v.data,
             v.len > most ? "..." : "");
    return true;
}

int api_param_time(const struct api_request *r, const char *name, int64_t *out, struct api_answer *a)
{
    struct err e = {0};
    char text[API_PARAM_SIZE];
    if (!api_param_text(r, name, text))
        return 0;
    /* A + that was not percent-encoded came as a blank. */
    char *blank = strlen(text) > 19 ? strchr(text + 19, ' ') : NULL;
    if (blank != NULL)
        *blank = '+';
    if (timestamp_parse(text, out, &e) == 0)
        return 0;
    api_fail(a, API_INVALID_REQUEST, "%s: %s", name, e.text);
    return -1;
}

int api_param_number(struct api_request *r, const char *name, int64_t most, int64_t *out)
{
    struct bytes v = api_param(r, name);
    char shown[40];
    if (v.data == NULL)
        return 0;
    *out = 0;
    for (size_t i = 0; i < v.len && *out <= most; i++)
        *out = v.data[i] >= '0' && v.data[i] <= '9' ? *out * 10 + v.data[i] - '0' : most + 1;
    if (*out >= 1 && *out <= most)
        return 0;
    api_fail(&r->answer, API_INVALID_REQUEST, "%s: \"%s\" is not a number from 1 to %" PRId64, name,
             bytes_printable(v, shown, sizeof shown), most);
    return -1;
}

int api_param_name(const struct api_request *r, const char *name, struct bytes *out, struct api_answer *a)
{
    *out = api_param(r, name);
    if (out->len <= MESSAGE_NAME_MAX)
        return 0;
    api_fail(a, API_INVALID_REQUEST, "%s: is %zu bytes long: allowed are up to %d", name, out->len,
             MESSAGE_NAME_MAX);
    return -1;
}
