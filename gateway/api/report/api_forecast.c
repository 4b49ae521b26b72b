/* GET /v1/forecast. */
#include "core/base/duration.h"
#include "core/base/timestamp.h"
#include "gateway/api/api_internal.h"
#include "gateway/json/json_report.h"

#include <stdio.h>
#include <string.h>

#define REPORT_MAX ((size_t)16 * 1024 * 1024)

/* A parameter as text; "" where it is not there. False: it is too long, and answered. */
static bool take_text(struct api_request *r, const char *name, char out[64])
{
    struct bytes v = api_param(r, name);
    out[0] = '\0';
    if (v.len >= 64 || memchr(v.data != NULL ? v.data : (const uint8_t *)"", '\0', v.len) != NULL) {
        api_fail(&r->answer, API_INVALID_REQUEST, "%s: it is too long", name);
        return false;
    }
    snprintf(out, 64, "%.*s", (int)v.len, v.data != NULL ? (const char *)v.data : "");
    return true;
}

static bool take_time(struct api_request *r, const char *name, int64_t *out)
{
    struct err e = {0};
    char text[64];
    if (!take_text(r, name, text))
        return false;
    if (text[0] == '\0' && api_param(r, name).data == NULL)
        return true;
    if (timestamp_parse(text, out, &e) == 0)
        return true;
    api_fail(&r->answer, API_INVALID_REQUEST, "%s: \"%s\": %s", name, text, e.text);
    return false;
}

static bool take_step(struct api_request *r, int64_t *out)
{
    struct err e = {0};
    char text[64];
    if (!take_text(r, "step", text))
        return false;
    if (api_param(r, "step").data == NULL || duration_parse(text, out, &e) == 0)
        return true;
    api_fail(&r->answer, API_INVALID_REQUEST, "step: \"%s\": %s", text, e.text);
    return false;
}

/* False: answered. */
static bool read_request(const struct api_context *c, struct api_request *r, struct forecast_request *q)
{
    static const char *const names[] = {"from", "until", "step", "exchange", NULL};
    struct err e = {0};
    *q = (struct forecast_request){.scope = api_operate_scope(r)};
    if (api_params_check(r, names) != 0 || !take_time(r, "from", &q->from_ms) ||
        !take_time(r, "until", &q->until_ms) || !take_step(r, &q->step_ms) ||
        api_param_name(r, "exchange", &q->exchange, &r->answer) != 0)
        return false;
    if (q->exchange.data != NULL && !api_scope_has(r->scope, q->exchange)) {
        api_fail(&r->answer, API_EXCHANGE_NOT_ALLOWED,
                 "exchange: it is not among those that the token lists");
        return false;
    }
    if (forecast_check(q, c->now_ms, &e) == 0)
        return true;
    api_fail(&r->answer, API_INVALID_REQUEST, "%s", e.text);
    return false;
}

int api_forecast(struct api_context *c, struct api_request *r, struct err *e)
{
    struct forecast_request q;
    struct forecast_report report;
    struct arena arena;
    if (!read_request(c, r, &q))
        return 0;
    arena_init(&arena, REPORT_MAX);
    int rc = forecast_read(c->pg, &q, &arena, &report, e);
    if (rc == 0) {
        struct json_memory_scope outer = json_memory_begin();
        api_answer_json(r, json_forecast(&report), outer);
    }
    arena_free(&arena);
    return rc;
}
