#include "gateway/json/json_slo.h"

#include "core/base/timestamp.h"

#include <math.h>

/* Six digits are enough for 99.9999 %, and none of them is noise. */
static json_t *make_ratio(double v)
{
    return json_real(round(v * 1e6) / 1e6);
}

static json_t *make_objective(const struct slo_objective *o)
{
    json_t *out = json_object();
    json_object_set_new(out, "late_ms", json_integer(o->late_ms));
    json_object_set_new(out, "target", make_ratio(o->target));
    json_object_set_new(out, "window_ms", json_integer(o->window_ms));
    return out;
}

static json_t *make_window(const struct slo_report *r)
{
    const struct slo_count *n = &r->in[SLO_ALL];
    json_t *out = json_object();
    json_object_set_new(out, "delivered", json_integer(n->delivered));
    json_object_set_new(out, "late", json_integer(n->late));
    json_object_set_new(out, "share", n->delivered > 0 ? make_ratio(slo_share(n)) : json_null());
    json_object_set_new(out, "budget_left", make_ratio(slo_budget_left(r)));
    return out;
}

static json_t *make_again(const struct slo_count *n)
{
    json_t *out = json_object();
    json_object_set_new(out, "delivered", json_integer(n->again));
    json_object_set_new(out, "late", json_integer(n->again_late));
    json_object_set_new(out, "late_since_attempt", json_integer(n->again_later));
    return out;
}

static json_t *make_burn(const struct slo_report *r)
{
    json_t *out = json_array();
    for (int i = 0; i < SLO_ALL; i++) {
        json_t *o = json_object();
        json_object_set_new(o, "window", json_string(slo_window_name((enum slo_window)i)));
        json_object_set_new(o, "delivered", json_integer(r->in[i].delivered));
        json_object_set_new(o, "late", json_integer(r->in[i].late));
        json_object_set_new(o, "rate", make_ratio(slo_burn(r, (enum slo_window)i)));
        json_array_append_new(out, o);
    }
    return out;
}

json_t *json_slo(const struct slo_report *r)
{
    char text[40];
    json_t *o = json_object();
    json_object_set_new(o, "objective", make_objective(&r->objective));
    json_object_set_new(o, "since",
                        r->since_ms < 0 ? json_null()
                                        : json_string(timestamp_format(r->since_ms, text, sizeof text)));
    json_object_set_new(o, "window", make_window(r));
    json_object_set_new(o, "after_retry", make_again(&r->in[SLO_ALL]));
    json_object_set_new(o, "burn", make_burn(r));
    return o;
}
