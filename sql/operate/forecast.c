#include "sql/operate/forecast.h"

#include "core/base/clock.h"
#include "core/base/rate.h"
#include "core/base/timestamp.h"
#include "sql/operate/operate_internal.h"
#include "sql/pipeline/store.h"
#include "sql_embedded.h"

#define MINUTE_MS INT64_C(60000)
#define HOUR_MS (60 * MINUTE_MS)
#define COUNT_ROWS 2500 /* messages in one statement, which takes some 15 ms */
#define COUNT_DAYS 10
#define REST 3 /* times as long as it took */
#define NICE_BUCKETS 300

const int64_t forecast_within_s[FORECAST_WITHIN] = {60, 600, 3600, 86400};

static int64_t grain_ms(int64_t step_ms)
{
    return step_ms % DAY_MS == 0 ? DAY_MS : step_ms % HOUR_MS == 0 ? HOUR_MS : MINUTE_MS;
}

static int64_t choose_step(int64_t span_ms)
{
    static const int64_t steps[] = {MINUTE_MS,   5 * MINUTE_MS, 15 * MINUTE_MS, HOUR_MS,
                                    6 * HOUR_MS, DAY_MS,        7 * DAY_MS,     30 * DAY_MS};
    size_t i = 0;
    while (i + 1 < sizeof steps / sizeof steps[0] && span_ms / steps[i] >= NICE_BUCKETS)
        i++;
    return steps[i];
}

int forecast_check(struct forecast_request *q, int64_t now_ms, struct err *e)
{
    if (q->from_ms == 0)
        q->from_ms = now_ms;
    if (q->until_ms == 0)
        q->until_ms = q->from_ms + DAY_MS;
    if (q->until_ms <= q->from_ms)
        return err_set(e, ERR_REJECT, "until: it is not after from");
    if (q->step_ms == 0)
        q->step_ms = choose_step(q->until_ms - q->from_ms);
    if (q->step_ms < MINUTE_MS || q->step_ms % MINUTE_MS != 0 ||
        (q->step_ms > HOUR_MS && q->step_ms % HOUR_MS != 0))
        return err_set(e, ERR_REJECT,
                       "step: allowed are whole minutes up to an hour, and whole hours or days");
    int64_t grain = grain_ms(q->step_ms), span_ms = q->until_ms - q->from_ms;
    int64_t longest = grain == MINUTE_MS ? FORECAST_MINUTES_MS
                      : grain == HOUR_MS ? FORECAST_HOURS_MS
                                         : INT64_MAX;
    if (span_ms > longest)
        return err_set(e, ERR_REJECT, "step: %s are kept for up to %lld days: use a longer step",
                       grain == MINUTE_MS ? "minutes" : "hours", (long long)(longest / DAY_MS));
    q->from_ms -= q->from_ms % grain;
    if (q->until_ms % grain != 0)
        q->until_ms += grain - q->until_ms % grain;
    if ((q->until_ms - q->from_ms - 1) / q->step_ms >= FORECAST_BUCKETS_MAX)
        return err_set(e, ERR_REJECT, "step: this gives more than %d steps: use a longer step",
                       FORECAST_BUCKETS_MAX);
    return 0;
}

static int assume_one(struct forecast_request *q, struct bytes text, struct err *e)
{
    size_t at = text.len;
    char shown[80];
    while (at > 0 && text.data[at - 1] != '=')
        at--;
    if (at == 0 || at - 1 > MESSAGE_NAME_MAX)
        return err_set(e, ERR_REJECT,
                       "what-if: \"%s\" is not allowed (allowed: EXCHANGE=RATE, as orders=500/s)",
                       bytes_printable(text, shown, sizeof shown));
    if (q->what_if_count == FORECAST_WHAT_IF_MAX)
        return err_set(e, ERR_REJECT, "what-if: more than %d rates", FORECAST_WHAT_IF_MAX);
    struct forecast_what_if *w = &q->what_if[q->what_if_count++];
    w->exchange = bytes_of(text.data, at - 1);
    return rate_parse(bytes_of(text.data + at, text.len - at), &w->per_second, e);
}

int forecast_assume(struct forecast_request *q, struct bytes text, struct err *e)
{
    size_t from = 0;
    for (size_t i = 0; i <= text.len; i++) {
        if (i < text.len && text.data[i] != ',')
            continue;
        if (assume_one(q, bytes_of(text.data + from, i - from), e) != 0)
            return -1;
        from = i + 1;
    }
    return 0;
}

static int read_state(struct pg *c, struct forecast_report *out, struct err *e)
{
    if (pg_ask(c, sql_query_forecast_state, NULL,
               PG_ROW(PG_TIME(out->as_of_ms), PG_TIME(out->corrected_ms), PG_TO(out->rate_per_s),
                      PG_TIME(out->now_ms)),
               e) != 0)
        return -1;
    out->rate_is_measured = out->rate_per_s >= FORECAST_RATE_LEAST;
    if (!out->rate_is_measured)
        out->rate_per_s = FORECAST_RATE_LEAST;
    return 0;
}

/* The exchange's place among those with the most; FORECAST_EXCHANGES_MAX: it is not named. */
static size_t place_of(struct forecast_report *out, const PGresult *r, int row, struct arena *a)
{
    int64_t place = pg_int8(r, row, 3) - 1;
    struct bytes exchange = pg_bytes(r, row, 1);
    if (place >= FORECAST_EXCHANGES_MAX)
        return FORECAST_EXCHANGES_MAX;
    struct bytes *named = &out->exchanges[place];
    if (named->data == NULL)
        *named = exchange.len > 0 ? arena_copy(a, exchange) : bytes_of("", 0);
    out->exchange_count = place >= (int64_t)out->exchange_count ? (size_t)place + 1 : out->exchange_count;
    return named->data != NULL ? (size_t)place : FORECAST_EXCHANGES_MAX;
}

static void take_row(struct forecast_report *out, const PGresult *r, int row, struct arena *a)
{
    int64_t at_ms = out->request.from_ms + pg_int8(r, row, 0) * out->request.step_ms;
    int64_t n = pg_int8(r, row, 2);
    struct forecast_bucket *b = &out->buckets[out->bucket_count];
    if (out->bucket_count > 0 && b[-1].at_ms == at_ms)
        b--;
    else
        out->bucket_count++;
    size_t place = place_of(out, r, row, a);
    b->at_ms = at_ms;
    b->count += n;
    out->total += n;
    if (place < FORECAST_EXCHANGES_MAX)
        b->by_exchange[place] += n;
}

/* Messages that are due faster than they can be delivered form a backlog; a burst begins or lengthens it.
 * There is a backlog for each rate, and one for messages without a rate. */
struct pile {
    struct bytes rate; /* its exchanges; data NULL: none */
    double count, rate_per_ms;
    int64_t at_ms; /* of the last that was added */
};

#define PILES_MAX 1024
struct piles {
    struct pile *pile;
    size_t count;
};

/* n come at at_ms, spread over span_ms. How long after at_ms they are delivered, if they are a burst; else 0.
 */
static int64_t add_to_pile(struct pile *p, int64_t at_ms, int64_t n, int64_t span_ms)
{
    double done = p->rate_per_ms * (double)(at_ms - p->at_ms);
    p->count = (p->count > done ? p->count - done : 0) + (double)n;
    p->at_ms = at_ms;
    bool more = (double)n > p->rate_per_ms * (double)span_ms ||
                (p->rate.data && p->count > p->rate_per_ms * (double)span_ms);
    return !more ? 0 : p->rate_per_ms > 0 ? (int64_t)(p->count / p->rate_per_ms) : FORECAST_NEVER;
}

/* That of the row; NULL: there are too many. */
static struct pile *pile_of(struct piles *piles, const PGresult *r, int row, struct arena *a)
{
    if (pg_is_null(r, row, 2))
        return &piles->pile[0];
    struct bytes rate = pg_bytes(r, row, 2);
    size_t i = 1;
    while (i < piles->count && !bytes_equal(piles->pile[i].rate, rate))
        i++;
    if (i < piles->count)
        return &piles->pile[i];
    rate = rate.len > 0 ? arena_copy(a, rate) : bytes_of("", 0);
    if (i == PILES_MAX || rate.data == NULL)
        return NULL;
    piles->pile[piles->count++] = (struct pile){
        .rate = rate, .rate_per_ms = (double)pg_int8(r, row, 3) / 1e12, .at_ms = piles->pile[0].at_ms};
    return &piles->pile[i];
}

/* By minutes, whatever the step: a minute's burst is one in an hour, too. */
static void mark_minutes(struct forecast_report *out, const PGresult *r, struct piles *piles, struct arena *a)
{
    size_t i = 0;
    for (int row = 0; row < PQntuples(r) && i < out->bucket_count; row++) {
        struct pile *pile = pile_of(piles, r, row, a);
        int64_t minute = pg_int8(r, row, 0), at_ms = out->request.from_ms + minute * MINUTE_MS;
        if (pile && minute < 0) /* it waits already */
            pile->count += (double)pg_int8(r, row, 1);
        if (!pile || minute < 0)
            continue;
        int64_t drain_ms = add_to_pile(pile, at_ms, pg_int8(r, row, 1), MINUTE_MS);
        while (i + 1 < out->bucket_count && out->buckets[i + 1].at_ms <= at_ms)
            i++;
        struct forecast_bucket *b = &out->buckets[i];
        if (drain_ms > 0 && drain_ms != FORECAST_NEVER)
            drain_ms += at_ms - b->at_ms;
        if (drain_ms > b->drain_ms) {
            b->drain_ms = drain_ms;
            b->rate = pile->rate;
        }
    }
}

static int take_rows(struct forecast_report *out, const PGresult *r, struct arena *a, struct err *e)
{
    int n = PQntuples(r);
    size_t most = (size_t)n < FORECAST_BUCKETS_MAX ? (size_t)n : FORECAST_BUCKETS_MAX;
    out->buckets = arena_alloc(a, (most + 1) * sizeof *out->buckets);
    if (out->buckets == NULL)
        return err_set(e, ERR_BUG, "out of memory");
    for (size_t i = 0; i <= most; i++)
        out->buckets[i] = (struct forecast_bucket){0};
    for (int i = 0; i < n; i++)
        take_row(out, r, i, a);
    return 0;
}

static struct pg_value as_exchanges(const struct forecast_request *q)
{
    return q->exchange.data != NULL ? as_texts(&q->exchange, 1) : as_scope(q->scope);
}

static void add_what_if(struct pg_params *p, const struct forecast_request *q)
{
    struct buf *names = pg_add_array(p, PG_OID_TEXT, q->what_if_count);
    struct buf *rates = pg_add_array(p, PG_OID_INT8, q->what_if_count);
    for (size_t i = 0; i < q->what_if_count; i++) {
        pg_array_bytes(names, q->what_if[i].exchange);
        pg_array_int8(rates, (int64_t)(q->what_if[i].per_second * 1e9));
    }
}

static int mark_bursts(struct pg *c, const struct forecast_request *q, struct arena *a,
                       struct forecast_report *out, struct err *e)
{
    struct piles piles = {.pile = arena_alloc(a, PILES_MAX * sizeof(struct pile)), .count = 1};
    if (piles.pile == NULL)
        return err_set(e, ERR_BUG, "out of memory");
    piles.pile[0] = (struct pile){.rate_per_ms = (double)out->rate_per_s / 1000, .at_ms = q->from_ms};
    if (q->until_ms - q->from_ms > FORECAST_MINUTES_MS) {
        for (size_t i = 0; i < out->bucket_count; i++) {
            struct forecast_bucket *b = &out->buckets[i];
            b->drain_ms = add_to_pile(&piles.pile[0], b->at_ms, b->count, out->request.step_ms);
        }
        return 0;
    }
    PG_PARAMS(p) = {0};
    pg_add(&p, as_time(q->from_ms));
    pg_add(&p, as_time(q->until_ms));
    pg_add(&p, as_exchanges(q));
    add_what_if(&p, q);
    PGresult *r = pg_query(c, sql_query_forecast_minutes, &p, e);
    if (r)
        mark_minutes(out, r, &piles, a);
    PQclear(r);
    return r ? 0 : -1;
}

int forecast_read(struct pg *c, const struct forecast_request *q, struct arena *a,
                  struct forecast_report *out, struct err *e)
{
    *out = (struct forecast_report){.request = *q};
    if (read_state(c, out, e) != 0)
        return -1;
    PGresult *r = pg_query(c, sql_query_forecast_read,
                           PG_WITH(as_int4((int32_t)(grain_ms(q->step_ms) / 1000)), as_time(q->from_ms),
                                   as_time(q->until_ms), as_int8(q->step_ms), as_exchanges(q)),
                           e);
    int rc = r ? take_rows(out, r, a, e) : -1;
    PQclear(r);
    return rc == 0 ? mark_bursts(c, q, a, out, e) : rc;
}

int forecast_within(struct pg *c, int64_t out[FORECAST_WITHIN], struct err *e)
{
    PGresult *r =
        pg_query(c, sql_query_forecast_within, PG_WITH(as_int8s(forecast_within_s, FORECAST_WITHIN)), e);
    for (int i = 0; r && i < PQntuples(r) && i < FORECAST_WITHIN; i++)
        out[i] = pg_int8(r, i, 0);
    PQclear(r);
    return r ? 0 : -1;
}

/* Pauses between two statements, so that due messages are processed first; no longer than the time of a
 * round, because waiting for a standby uses no processor. False: end. */
static bool rest_after(const struct forecast_pace *pace, int64_t *began_ms)
{
    int64_t took_ms = clock_monotonic_ms() - *began_ms, most_ms = pace->limit_ms / 2;
    int64_t rest_ms = took_ms < 1 ? REST : took_ms > most_ms / REST ? most_ms : REST * took_ms;
    bool on = pace->rest(pace->resting, rest_ms);
    *began_ms = clock_monotonic_ms();
    return on;
}

int forecast_count(struct pg *c, const struct forecast_pace *pace, struct err *e)
{
    static const char *const rounds[] = {"soon", "all"};
    int64_t now_ms = clock_monotonic_ms(), until_ms = now_ms;
    if (pg_exec(c, "set lock_timeout = '200ms'", e) != 0)
        return -1;
    for (size_t i = 0; i < sizeof rounds / sizeof rounds[0]; i++) {
        int more = 1;
        until_ms +=
            pace->limit_ms / 2; /* else millions that are due soon would leave nothing for the others */
        while (more > 0 && now_ms < until_ms) {
            more = (int)pg_number(c, sql_query_forecast_count,
                                  PG_WITH(as_str(rounds[i]), as_int4(COUNT_DAYS), as_int8(COUNT_ROWS)), e);
            if (!rest_after(pace, &now_ms))
                return more < 0 ? -1 : 0;
        }
        if (more < 0)
            return -1;
    }
    return 0;
}
