#include "gateway/json/json_report.h"

#include "gateway/json/json_message.h"

#include <math.h>

/* Six digits are enough for 99.9999 %, and none of them is noise. */
static double digits(double v)
{
    return round(v * 1e6) / 1e6;
}

static json_t *slo_window_value(const struct slo_report *r)
{
    const struct slo_count *n = &r->in[SLO_ALL];
    return json_pack("{s:I, s:I, s:o, s:f}", "delivered", (json_int_t)n->delivered, "late",
                     (json_int_t)n->late, "share",
                     n->delivered > 0 ? json_real(digits(slo_share(n))) : json_null(), "budget_left",
                     digits(slo_budget_left(r)));
}

static json_t *slo_burn_value(const struct slo_report *r)
{
    json_t *out = json_array();
    for (enum slo_window i = 0; i < SLO_ALL; i++)
        json_array_append_new(out, json_pack("{s:s, s:I, s:I, s:f}", "window", slo_window_name(i),
                                             "delivered", (json_int_t)r->in[i].delivered, "late",
                                             (json_int_t)r->in[i].late, "rate", digits(slo_burn(r, i))));
    return out;
}

json_t *json_slo(const struct slo_report *r)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "objective",
                     json_pack("{s:I, s:f, s:I}", "late_ms", (json_int_t)r->objective.late_ms, "target",
                               digits(r->objective.target), "window_ms", (json_int_t)r->objective.window_ms),
                     "since", json_time_value(r->since_ms), "window", slo_window_value(r), "after_retry",
                     json_pack("{s:I, s:I, s:I}", "delivered", (json_int_t)r->in[SLO_ALL].again, "late",
                               (json_int_t)r->in[SLO_ALL].again_late, "late_since_attempt",
                               (json_int_t)r->in[SLO_ALL].again_later),
                     "burn", slo_burn_value(r));
}

/* The first name of some; null: there are none. */
static json_t *first_value(int64_t count, const char *name)
{
    return count > 0 ? json_string(name) : json_null();
}

json_t *json_held(const struct status_held *h)
{
    return json_pack("{s:I, s:o, s:I, s:o, s:I, s:I, s:o, s:I}", "schedules_paused", (json_int_t)h->paused,
                     "first_paused", first_value(h->paused, h->first_paused), "schedules_behind",
                     (json_int_t)h->behind, "first_behind", first_value(h->behind, h->first_behind),
                     "occurrences_left_out", (json_int_t)h->left_out, "rates_paused", (json_int_t)h->rates,
                     "first_rate", first_value(h->rates, h->first_rate), "messages_waiting",
                     (json_int_t)h->waiting);
}

static json_t *exchanges_value(const struct forecast_report *r)
{
    json_t *out = json_array();
    for (size_t i = 0; i < r->exchange_count; i++)
        json_array_append_new(out, json_stringn((const char *)r->exchanges[i].data, r->exchanges[i].len));
    return out;
}

static json_t *bucket_value(const struct forecast_report *r, const struct forecast_bucket *b)
{
    json_t *counts = json_array();
    for (size_t i = 0; i < r->exchange_count; i++)
        json_array_append_new(counts, json_integer(b->by_exchange[i]));
    return json_pack("{s:o, s:I, s:o}", "at", json_time_value(b->at_ms), "count", (json_int_t)b->count,
                     "by_exchange", counts);
}

static json_t *burst_value(const struct forecast_bucket *b)
{
    bool never = b->drain_ms == FORECAST_NEVER;
    json_t *o = json_pack("{s:o, s:I, s:o, s:o}", "at", json_time_value(b->at_ms), "count",
                          (json_int_t)b->count, "drain_ms", never ? json_null() : json_integer(b->drain_ms),
                          "drained_at", never ? json_null() : json_time_value(b->at_ms + b->drain_ms));
    if (b->rate.data)
        json_object_set_new(o, "rate_of", json_stringn((const char *)b->rate.data, b->rate.len));
    return o;
}

json_t *json_forecast(const struct forecast_report *r)
{
    json_t *o = json_object(), *buckets = json_array(), *bursts = json_array();
    for (size_t i = 0; i < r->bucket_count; i++) {
        json_array_append_new(buckets, bucket_value(r, &r->buckets[i]));
        if (r->buckets[i].drain_ms > 0)
            json_array_append_new(bursts, burst_value(&r->buckets[i]));
    }
    json_object_set_new(o, "from", json_time_value(r->request.from_ms));
    json_object_set_new(o, "until", json_time_value(r->request.until_ms));
    json_object_set_new(o, "step_ms", json_integer(r->request.step_ms));
    json_object_set_new(o, "as_of", json_time_value(r->as_of_ms));
    json_object_set_new(o, "corrected_at", json_time_value(r->corrected_ms));
    json_object_set_new(o, "total", json_integer(r->total));
    json_object_set_new(o, "rate_per_s", json_integer(r->rate_per_s));
    json_object_set_new(o, "rate_is_measured", json_boolean(r->rate_is_measured));
    json_object_set_new(o, "exchanges", exchanges_value(r));
    json_object_set_new(o, "buckets", buckets);
    json_object_set_new(o, "bursts", bursts);
    return o;
}
