#include "gateway/json/json_forecast.h"

#include "core/base/timestamp.h"

static json_t *make_time(int64_t ms)
{
    char text[40];
    return ms < 0 ? json_null() : json_string(timestamp_format(ms, text, sizeof text));
}

static json_t *make_exchanges(const struct forecast_report *r)
{
    json_t *out = json_array();
    for (size_t i = 0; i < r->exchange_count; i++)
        json_array_append_new(out, json_stringn((const char *)r->exchanges[i].data, r->exchanges[i].len));
    return out;
}

static json_t *make_bucket(const struct forecast_report *r, const struct forecast_bucket *b)
{
    json_t *o = json_object(), *counts = json_array();
    for (size_t i = 0; i < r->exchange_count; i++)
        json_array_append_new(counts, json_integer(b->by_exchange[i]));
    json_object_set_new(o, "at", make_time(b->at_ms));
    json_object_set_new(o, "count", json_integer(b->count));
    json_object_set_new(o, "by_exchange", counts);
    return o;
}

static json_t *make_burst(const struct forecast_bucket *b)
{
    json_t *o = json_object();
    json_object_set_new(o, "at", make_time(b->at_ms));
    json_object_set_new(o, "count", json_integer(b->count));
    json_object_set_new(o, "drain_ms", json_integer(b->drain_ms));
    json_object_set_new(o, "drained_at", make_time(b->at_ms + b->drain_ms));
    return o;
}

json_t *json_forecast(const struct forecast_report *r)
{
    json_t *o = json_object(), *buckets = json_array(), *bursts = json_array();
    for (size_t i = 0; i < r->bucket_count; i++) {
        json_array_append_new(buckets, make_bucket(r, &r->buckets[i]));
        if (r->buckets[i].drain_ms > 0)
            json_array_append_new(bursts, make_burst(&r->buckets[i]));
    }
    json_object_set_new(o, "from", make_time(r->request.from_ms));
    json_object_set_new(o, "until", make_time(r->request.until_ms));
    json_object_set_new(o, "step_ms", json_integer(r->request.step_ms));
    json_object_set_new(o, "as_of", make_time(r->as_of_ms));
    json_object_set_new(o, "corrected_at", make_time(r->corrected_ms));
    json_object_set_new(o, "total", json_integer(r->total));
    json_object_set_new(o, "rate_per_s", json_integer(r->rate_per_s));
    json_object_set_new(o, "rate_is_measured", json_boolean(r->rate_is_measured));
    json_object_set_new(o, "exchanges", make_exchanges(r));
    json_object_set_new(o, "buckets", buckets);
    json_object_set_new(o, "bursts", bursts);
    return o;
}
