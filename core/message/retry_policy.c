#include "core/message/retry_policy.h"

#include "core/base/rate.h"

#include <string.h>

const struct retry_policy retry_policy_default = {
    .pattern = {(const uint8_t *)"*", 1},
    .attempts = 10,
    .first_ms = 1000,
    .max_ms = 3600000,
    .factor = 2,
    .jitter = 10,
    .on = DEATH_REJECTED | DEATH_DELIVERY_LIMIT,
    .keep_dead_ms = INT64_C(30) * 86400000,
};

static bool is_better(const struct retry_policy *a, const struct retry_policy *b)
{
    if (!b || a->pattern.len != b->pattern.len)
        return !b || a->pattern.len > b->pattern.len;
    return memcmp(a->pattern.data, b->pattern.data, a->pattern.len) < 0;
}

const struct retry_policy *retry_policy_find(const struct retry_policy *list, size_t count,
                                             struct bytes queue)
{
    const struct retry_policy *best = NULL;
    for (size_t i = 0; i < count; i++)
        if (is_better(&list[i], best) && glob_matches(list[i].pattern, queue))
            best = &list[i];
    return best ? best : &retry_policy_default;
}

int64_t retry_policy_wait_ms(const struct retry_policy *p, int failed, uint32_t random)
{
    double wait_ms = (double)p->first_ms, most_ms = (double)p->max_ms;
    for (int i = 1; i < failed && wait_ms < most_ms && wait_ms > 0; i++)
        wait_ms *= p->factor;
    if (wait_ms > most_ms)
        wait_ms = most_ms;
    double share = (double)random / UINT32_MAX * 2 - 1; /* -1 to 1 */
    wait_ms += wait_ms * share * p->jitter / 100;
    return (int64_t)(wait_ms < most_ms ? wait_ms : most_ms);
}

static int check_range(const char *name, int64_t value, int64_t least, int64_t most, const char *unit,
                       struct err *e)
{
    if (value >= least && value <= most)
        return 0;
    return err_set(e, ERR_REJECT, "%s: %lld is out of range (allowed: %lld to %lld%s)", name,
                   (long long)value, (long long)least, (long long)most, unit);
}

int retry_policy_check(const struct retry_policy *p, struct err *e)
{
    if (p->pattern.len < 1 || p->pattern.len > 255 || !bytes_is_text(p->pattern))
        return err_set(e, ERR_REJECT,
                       "pattern: it has %zu bytes (allowed: 1 to 255 bytes of UTF-8, for names "
                       "of queues, '*' matches any run of characters)",
                       p->pattern.len);
    if (!(p->factor >= 1 && p->factor <= RETRY_FACTOR_MAX))
        return err_set(e, ERR_REJECT, "factor: %g is out of range (allowed: 1 to %g)", p->factor,
                       RETRY_FACTOR_MAX);
    if (p->on > (DEATH_REJECTED | DEATH_DELIVERY_LIMIT | DEATH_EXPIRED | DEATH_MAXLEN))
        return err_set(e, ERR_REJECT,
                       "on: unknown reasons (allowed: rejected, delivery_limit, expired, maxlen)");
    if (check_range("attempts", p->attempts, 1, RETRY_ATTEMPTS_MAX, "", e) != 0 ||
        check_range("first", p->first_ms, 0, RETRY_WAIT_MAX_MS, " ms", e) != 0 ||
        check_range("max", p->max_ms, 0, RETRY_WAIT_MAX_MS, " ms", e) != 0 ||
        check_range("jitter", p->jitter, 0, 100, " %", e) != 0 ||
        check_range("keep_dead", p->keep_dead_ms, 0, RETRY_KEEP_MAX_MS, " ms", e) != 0)
        return -1;
    return p->first_ms <= p->max_ms
               ? 0
               : err_set(e, ERR_REJECT, "first: %lld ms is longer than max (allowed: at most %lld ms)",
                         (long long)p->first_ms, (long long)p->max_ms);
}

static const struct {
    unsigned reason;
    const char *name;
} reasons[] = {{DEATH_REJECTED, "rejected"},
               {DEATH_DELIVERY_LIMIT, "delivery_limit"},
               {DEATH_EXPIRED, "expired"},
               {DEATH_MAXLEN, "maxlen"},
               {DEATH_DEADLINE, "deadline"}};

const char *death_reason_name(unsigned reason)
{
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (reasons[i].reason == reason)
            return reasons[i].name;
    return NULL;
}

unsigned death_reason_parse(struct bytes name)
{
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (reasons[i].reason != DEATH_DEADLINE && bytes_equal_str(name, reasons[i].name))
            return reasons[i].reason;
    return 0;
}

int retry_policy_parse_on(struct bytes text, unsigned *out, struct err *e)
{
    char shown[80];
    size_t at = 0;
    *out = 0;
    do {
        size_t end = at;
        while (end < text.len && text.data[end] != ',')
            end++;
        struct bytes word = bytes_of(text.data + at, end - at);
        unsigned reason = death_reason_parse(word);
        if (reason == 0)
            return err_set(e, ERR_REJECT,
                           "on: \"%s\" is no reason (allowed: rejected, delivery_limit, expired, maxlen, "
                           "with commas between)",
                           bytes_printable(word, shown, sizeof shown));
        *out |= reason;
        at = end + 1;
    } while (at <= text.len);
    return 0;
}

int retry_policy_parse_rate(struct bytes text, int64_t *out_interval_us, struct err *e)
{
    char shown[80];
    double per_second;
    if (rate_parse(text, &per_second, NULL) != 0 || per_second == 0)
        return err_set(
            e, ERR_REJECT,
            "rate: \"%s\" is no rate (allowed: such as 50/s, 600/m, 100/h, up to 1000000 a second)",
            bytes_printable(text, shown, sizeof shown));
    *out_interval_us = (int64_t)(1000000 / per_second + 0.999); /* rounded up, but for what floats add */
    return 0;
}
