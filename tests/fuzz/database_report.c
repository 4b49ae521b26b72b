/* What the reports ask of sql/. */
#include "sql/operate/forecast.h"
#include "tests/fuzz/database.h"
#include "tests/fuzz/fuzz.h"

const int64_t forecast_within_s[FORECAST_WITHIN] = {60, 600, 3600, 86400};

int slo_read(struct pg *c, const struct slo_objective *o, struct slo_report *out, struct err *e)
{
    (void)c;
    *out = (struct slo_report){.objective = *o, .since_ms = database_byte() & 1 ? FUZZ_NOW_MS : -1};
    for (int i = 0; i < SLO_WINDOWS; i++) {
        out->in[i].delivered = database_byte();
        out->in[i].late = out->in[i].delivered / 2;
    }
    return database_outcome(false, e);
}

int forecast_check(struct forecast_request *q, int64_t now_ms, struct err *e)
{
    FUZZ_HOLDS(q->step_ms >= 0 && now_ms == FUZZ_NOW_MS);
    if (q->step_ms % 60000 != 0)
        return err_set(e, ERR_REJECT, "step: no");
    q->from_ms = FUZZ_NOW_MS;
    return 0;
}

int forecast_assume(struct forecast_request *q, struct bytes text, struct err *e)
{
    q->what_if_count++;
    return text.data[0] == '=' ? err_set(e, ERR_REJECT, "what-if: no exchange") : 0;
}

int forecast_read(struct pg *c, const struct forecast_request *q, struct arena *a,
                  struct forecast_report *out, struct err *e)
{
    static struct forecast_bucket bucket = {
        .at_ms = FUZZ_NOW_MS, .count = 3, .by_exchange = {3}, .drain_ms = 9};
    (void)c, (void)a;
    *out = (struct forecast_report){.request = *q,
                                    .bucket_count = database_byte() % 2,
                                    .buckets = &bucket,
                                    .exchange_count = 1,
                                    .exchanges = {bytes_of_str("orders")},
                                    .as_of_ms = -1};
    return database_outcome(false, e);
}
