/* Publishing.
 *
 * The three kinds of frames are written here and not by the library, for three reasons: properties go out
 * byte for byte; the library sends each frame with a system call of its own and we send many messages with
 * one; and nothing can fail between the first and the last frame of a message (the library encodes the header
 * after it has sent the method, which desynchronises the connection when the header does not fit). */
#include "amqp/connection/broker_internal.h"
#include "core/message/wire.h"

#define HEADER_FIXED 12 /* class, weight, body size */

int broker_flush(struct broker *b, struct err *e)
{
    return b->dead ? broker_begin(b, e) : broker_send(b, e);
}

bool broker_has_unsent(const struct broker *b)
{
    return b->out.len > 0;
}

/* What would make the server or the library give up the connection is refused here, before the first byte. */
static int check_message(const struct broker *b, const struct broker_message *m, struct err *e)
{
    const struct bytes properties = m->properties;
    struct wire_properties ignored;
    if (m->exchange.len > BROKER_NAME_MAX || m->routing_key.len > BROKER_NAME_MAX)
        return err_set(e, ERR_REJECT,
                       "exchange (%zu bytes) and routing key (%zu bytes) may have at most %d bytes",
                       m->exchange.len, m->routing_key.len, BROKER_NAME_MAX);
    if (properties.len > 0 && wire_properties_read(properties, &ignored, e))
        return -1;
    if (properties.len == 1 || (properties.len >= 2 && (properties.data[1] & 3) != 0))
        return err_set(e, ERR_REJECT, "the property flags are malformed");
    if (properties.len + HEADER_FIXED + BROKER_FRAME_OVERHEAD > b->frame_max) {
        return err_set(e, ERR_REJECT,
                       "properties and headers have %zu bytes; this connection carries at most %zu",
                       properties.len, b->frame_max - HEADER_FIXED - BROKER_FRAME_OVERHEAD);
    }
    return 0;
}

static void put_frame_start(struct buf *out, uint8_t type, size_t payload)
{
    buf_put_u8(out, type);
    buf_put_u16(out, BROKER_CHANNEL);
    buf_put_u32(out, (uint32_t)payload);
}

/* Method and content header. */
static void put_message_start(struct buf *out, const struct broker_message *m)
{
    put_frame_start(out, AMQP_FRAME_METHOD, 4 + 2 + 1 + m->exchange.len + 1 + m->routing_key.len + 1);
    buf_put_u32(out, AMQP_BASIC_PUBLISH_METHOD);
    buf_put_u16(out, 0); /* reserved */
    wire_put_name(out, m->exchange);
    wire_put_name(out, m->routing_key);
    buf_put_u8(out, m->mandatory ? 1 : 0);
    buf_put_u8(out, AMQP_FRAME_END);
    put_frame_start(out, AMQP_FRAME_HEADER, HEADER_FIXED + (m->properties.len ? m->properties.len : 2));
    buf_put_u16(out, AMQP_BASIC_CLASS);
    buf_put_u16(out, 0); /* weight */
    buf_put_u64(out, m->body.len);
    if (m->properties.len)
        buf_put_bytes(out, m->properties);
    else
        buf_put_u16(out, 0);
    buf_put_u8(out, AMQP_FRAME_END);
}

static int put_message(struct broker *b, const struct broker_message *m, struct err *e)
{
    size_t chunk_max = b->frame_max - BROKER_FRAME_OVERHEAD;
    put_message_start(&b->out, m);
    for (size_t done = 0; done < m->body.len && !b->out.failed;) {
        size_t chunk = m->body.len - done < chunk_max ? m->body.len - done : chunk_max;
        put_frame_start(&b->out, AMQP_FRAME_BODY, chunk);
        buf_put(&b->out, m->body.data + done, chunk);
        buf_put_u8(&b->out, AMQP_FRAME_END);
        done += chunk;
        if (b->out.len >= BROKER_GATHERED_BYTES && !b->out.failed && broker_send(b, e))
            return -1;
    }
    if (b->out.failed)
        return broker_fail_status(b, AMQP_STATUS_NO_MEMORY, "publish", e);
    return b->out.len >= BROKER_GATHERED_BYTES ? broker_send(b, e) : 0;
}

int broker_publish(struct broker *b, const struct broker_message *m, uint64_t *seq, struct err *e)
{
    if (b->dead)
        return broker_begin(b, e);
    if (check_message(b, m, e))
        return -1;
    int rc = put_message(b, m, e);
    if (rc == 0) {
        if (seq)
            *seq = b->next_seq;
        b->next_seq += b->next_seq > 0;
    }
    return rc;
}

int broker_publish_to_queue(struct broker *b, const char *queue, struct buf *properties, struct bytes body,
                            uint64_t *seq, struct err *e)
{
    const struct broker_message m = {.routing_key = bytes_of_str(queue),
                                     .properties = buf_bytes(properties),
                                     .body = body,
                                     .mandatory = true};
    int rc = properties->failed ? err_set(e, ERR_BUSY, "out of memory for the headers of a message")
                                : broker_publish(b, &m, seq, e);
    buf_free(properties);
    return rc;
}
