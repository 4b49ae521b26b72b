/* whoami, the objective, and the forecast. */
#include "core/base/duration.h"
#include "gateway/json/json_report.h"
#include "gateway/ops/api_internal.h"

/* NULL: no token, so all of them. */
static json_t *exchange_names(const struct api_scope *s)
{
    json_t *out = json_array();
    for (size_t i = 0; s != NULL && i < s->exchanges.count; i++)
        json_array_append_new(
            out, json_stringn((const char *)s->exchanges.exchanges[i].data, s->exchanges.exchanges[i].len));
    return out;
}

int api_whoami(struct api_context *c, struct api_request *r, struct err *e)
{
    const struct api_scope *s = r->scope;
    (void)e;
    c->value =
        json_pack("{s:s?, s:s, s:b, s:o, s:s}", "name", s != NULL ? s->name : NULL, "role",
                  s != NULL && s->reads_only ? "read" : "operate", "all_exchanges", (int)api_scope_is_all(s),
                  "exchanges", exchange_names(api_scope_is_all(s) ? NULL : s), "from", r->from);
    return 0;
}

int api_slo(struct api_context *c, struct api_request *r, struct err *e)
{
    struct slo_report report;
    (void)r;
    if (slo_read(c->pg, &c->objective, &report, e) != 0)
        return -1;
    c->value = json_slo(&report);
    return 0;
}

static int read_step(const struct api_params *p, int64_t *out, struct err *e)
{
    char text[API_PARAM_SIZE];
    if (!api_param_text(p, "step", text) || duration_parse(text, out, e) == 0)
        return 0;
    return err_wrap(e, "step: \"%s\"", text);
}

int api_forecast(struct api_context *c, struct api_request *r, struct err *e)
{
    struct forecast_request q = {.scope = api_operate_scope(r)};
    struct forecast_report report;
    struct bytes what_if = api_param(&r->params, "what_if");
    if (api_param_time(&r->params, "from", &q.from_ms, e) != 0 ||
        api_param_time(&r->params, "until", &q.until_ms, e) != 0 ||
        read_step(&r->params, &q.step_ms, e) != 0 ||
        api_param_name(&r->params, "exchange", &q.exchange, e) != 0 ||
        (what_if.len > 0 && forecast_assume(&q, what_if, e) != 0))
        return -1;
    if (q.exchange.data != NULL && !api_scope_has(r->scope, q.exchange)) {
        api_fail(&r->answer, API_EXCHANGE_NOT_ALLOWED,
                 "exchange: it is not among those that the token lists");
        return 0;
    }
    if (forecast_check(&q, c->now_ms, e) != 0 || forecast_read(c->pg, &q, &c->arena, &report, e) != 0)
        return -1;
    c->value = json_forecast(&report);
    return 0;
}
