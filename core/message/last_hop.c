#include "core/message/last_hop.h"

#include "core/base/names.h"
#include "core/message/publish_headers.h"
#include "core/message/wire.h"

/* Each of a ladder's steps adds an entry to x-death that repeats routing key and CC, and no consumer can read
 * a header frame that has grown beyond 128 KiB: seven levels, the exit queue, and the properties themselves.
 */
#define PROPERTIES_MAX (12u * 1024)
/* From RabbitMQ 4.0 on, a quorum queue gives what is above it, and what is not, in turns. So a ping would
 * come before receipts that were there before it (gateway/relay/relay_rescue.h). */
#define PRIORITY_MAX 4

static const char *const queues[LAST_HOP_QUEUES] = {broker_names.exit_broker, broker_names.exit_broker_2};

const char *last_hop_queue(int number)
{
    return queues[number - 1];
}

bool last_hop_owns_queue(struct bytes name)
{
    for (int i = 0; i < LAST_HOP_QUEUES; i++)
        if (bytes_equal_str(name, queues[i]))
            return true;
    return false;
}

bool last_hop_takes(const struct message *m)
{
    struct wire_properties p;
    struct wire_field f;
    if (m->exchange.len == 0 || m->properties.len > PROPERTIES_MAX ||
        wire_properties_read(m->properties, &p, NULL) != 0)
        return false;
    bool overtakes = (p.flags & WIRE_PRIORITY) && p.priority > PRIORITY_MAX;
    return !overtakes && !(p.flags & WIRE_EXPIRATION) && !wire_find(p.headers, "x-death", &f);
}

int last_hop_write(const struct message *m, struct bytes steering, struct buf *out, struct err *e)
{
    struct buf extra;
    buf_init(&extra, steering.len + m->exchange.len + 128);
    buf_put_bytes(&extra, steering);
    wire_put_string(&extra, bytes_of_str(LAST_HOP_HEADER), bytes_of_str(LAST_HOP_BROKER));
    wire_put_string(&extra, bytes_of_str(LAST_HOP_EXCHANGE_HEADER), m->exchange);
    int rc = extra.failed ? err_set(e, ERR_BUG, "out of memory")
                          : publish_headers_build_with(m, buf_bytes(&extra), out, e);
    buf_free(&extra);
    return rc;
}

struct bytes last_hop_exchange(struct bytes properties)
{
    struct wire_properties p;
    struct bytes exchange = {0};
    if (wire_properties_read(properties, &p, NULL) == 0)
        wire_find_string(p.headers, LAST_HOP_EXCHANGE_HEADER, &exchange);
    return exchange;
}
