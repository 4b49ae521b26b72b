/* GET /v1/slo and /v1/forecast. */
#include "core/base/duration.h"
#include "gateway/api/api_internal.h"
#include "gateway/json/json_report.h"

#define REPORT_MAX ((size_t)16 * 1024 * 1024)

bool api_sees_all(struct api_request *r)
{
    if (api_scope_is_all(r->scope))
        return true;
    api_fail(
        &r->answer, API_EXCHANGE_NOT_ALLOWED,
        "this is about all exchanges: it needs a token for all of them (`postdate token create --exchange "
        "'*'`)");
    return false;
}

int api_slo(struct api_context *c, struct api_request *r, struct err *e)
{
    struct slo_report report;
    if (!api_takes_nothing(r) || !api_sees_all(r))
        return 0;
    if (slo_read(c->pg, &c->objective, &report, e) != 0)
        return -1;
    struct json_memory_scope outer = json_memory_begin();
    api_answer_json(r, json_slo(&report), outer);
    return 0;
}

static bool take_step(struct api_request *r, int64_t *out)
{
    struct err e = {0};
    char text[API_PARAM_SIZE];
    if (!api_param_text(r, "step", text) || duration_parse(text, out, &e) == 0)
        return true;
    api_fail(&r->answer, API_INVALID_REQUEST, "step: \"%s\": %s", text, e.text);
    return false;
}

/* False: answered. */
static bool read_request(const struct api_context *c, struct api_request *r, struct forecast_request *q)
{
    static const char *const names[] = {"from", "until", "step", "exchange", "what_if", NULL};
    struct err e = {0};
    *q = (struct forecast_request){.scope = api_operate_scope(r)};
    if (api_params_check(r, names) != 0 || api_param_time(r, "from", &q->from_ms, &r->answer) != 0 ||
        api_param_time(r, "until", &q->until_ms, &r->answer) != 0 || !take_step(r, &q->step_ms) ||
        api_param_name(r, "exchange", &q->exchange, &r->answer) != 0)
        return false;
    struct bytes what_if = api_param(r, "what_if");
    if (what_if.len > 0 && forecast_assume(q, what_if, &e) != 0) {
        api_fail(&r->answer, API_INVALID_REQUEST, "%s", e.text);
        return false;
    }
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
