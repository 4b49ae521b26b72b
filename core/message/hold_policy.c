#include "core/message/hold_policy.h"

static const char *const names[] = {
    [HOLD_POLICY_NOTHING] = "nothing",
    [HOLD_POLICY_PLAIN] = "plain",
    [HOLD_POLICY_ALL] = "all",
};

enum hold_policy hold_policy_make(bool has_transport, bool hands_over_all)
{
    if (!has_transport)
        return HOLD_POLICY_NOTHING;
    return hands_over_all ? HOLD_POLICY_ALL : HOLD_POLICY_PLAIN;
}

enum message_hold hold_policy_decide(enum hold_policy p, const struct hold_request *r)
{
    if (p == HOLD_POLICY_NOTHING || r->has_deadline)
        return HOLD_GATEWAY;
    if (r->has_wish)
        return r->wish;
    if (p == HOLD_POLICY_ALL)
        return HOLD_BROKER;
    return r->is_named || r->has_key ? HOLD_GATEWAY : HOLD_BROKER;
}

const char *hold_policy_name(enum hold_policy p)
{
    return names[p];
}

int hold_policy_parse(struct bytes name, enum hold_policy *out)
{
    for (int i = 0; i <= HOLD_POLICY_ALL; i++)
        if (bytes_equal_str(name, names[i])) {
            *out = (enum hold_policy)i;
            return 0;
        }
    return -1;
}

int64_t hold_policy_least_ahead_ms(int64_t min_ahead_ms, int64_t lead_ms)
{
    return min_ahead_ms > 2 * lead_ms ? min_ahead_ms : 2 * lead_ms;
}
