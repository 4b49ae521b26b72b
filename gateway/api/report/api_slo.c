/* GET /v1/slo. */
#include "gateway/api/api_internal.h"
#include "gateway/json/json_report.h"

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

void api_answer_json(struct api_request *r, json_t *value, struct json_memory_scope outer)
{
    if (json_memory_end(outer)) {
        api_fail(&r->answer, API_OVERLOADED, "there is no memory for this answer now");
    } else {
        r->answer.status = 200;
        api_dump(value, &r->answer);
    }
    json_decref(value);
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
