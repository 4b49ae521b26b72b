#include "core/message/message.h"

static const char *const state_names[] = {
    [MESSAGE_SCHEDULED] = "scheduled", [MESSAGE_CLAIMED] = "claimed",     [MESSAGE_HANDED] = "handed",
    [MESSAGE_DELIVERED] = "delivered", [MESSAGE_CANCELLED] = "cancelled", [MESSAGE_SUPERSEDED] = "superseded",
    [MESSAGE_FAILED] = "failed",       [MESSAGE_EXPIRED] = "expired",     [MESSAGE_STATE_COUNT] = NULL,
};

const char *message_state_name(enum message_state s)
{
    return (unsigned)s < MESSAGE_STATE_COUNT ? state_names[s] : "unknown";
}

int message_state_parse(const char *name, enum message_state *out)
{
    int i = bytes_find_word(bytes_of_str(name), state_names);
    *out = i < 0 ? *out : (enum message_state)i;
    return i < 0 ? -1 : 0;
}

size_t message_size(const struct message *m)
{
    return m->exchange.len + m->routing_key.len + m->key.len + m->properties.len + m->body.len;
}

/* --- who waits */

static const char *const policy_names[] = {
    [HOLD_POLICY_NOTHING] = "nothing",
    [HOLD_POLICY_PLAIN] = "plain",
    [HOLD_POLICY_ALL] = "all",
    NULL,
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
    return policy_names[p];
}

int hold_policy_parse(struct bytes name, enum hold_policy *out)
{
    int i = bytes_find_word(name, policy_names);
    *out = i < 0 ? *out : (enum hold_policy)i;
    return i < 0 ? -1 : 0;
}

int64_t hold_policy_least_ahead_ms(int64_t min_ahead_ms, int64_t lead_ms)
{
    return min_ahead_ms > 2 * lead_ms ? min_ahead_ms : 2 * lead_ms;
}
