#include "core/message/message.h"
#include <string.h>

static const char *const state_names[] = {
    [MESSAGE_SCHEDULED] = "scheduled", [MESSAGE_CLAIMED] = "claimed",     [MESSAGE_HANDED] = "handed",
    [MESSAGE_DELIVERED] = "delivered", [MESSAGE_CANCELLED] = "cancelled", [MESSAGE_SUPERSEDED] = "superseded",
    [MESSAGE_FAILED] = "failed",       [MESSAGE_EXPIRED] = "expired",
};

const char *message_state_name(enum message_state s)
{
    return (unsigned)s < MESSAGE_STATE_COUNT ? state_names[s] : "unknown";
}

int message_state_parse(const char *name, enum message_state *out)
{
    for (unsigned i = 0; i < MESSAGE_STATE_COUNT; i++) {
        if (strcmp(name, state_names[i]) == 0) {
            *out = (enum message_state)i;
            return 0;
        }
    }
    return -1;
}

size_t message_size(const struct message *m)
{
    return m->exchange.len + m->routing_key.len + m->key.len + m->properties.len + m->body.len;
}
