/* What a server may send to a connection that is logged in and consumes or publishes. The client library,
 * which decodes the arguments of methods, is not instrumented. First byte: how many publishes it may confirm;
 * then the bytes that come, which end with the connection. The input is made of frames: their type, channel,
 * and payload behind a length are wrapped properly. */
#include "amqp/connection/broker_internal.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define BODY_MAX 2000
#define EVENTS_MAX 200

/* A broker as broker_open leaves it, on this socket. */
static void open_broker(struct broker *b, int fd, uint64_t next_seq)
{
    *b = (struct broker){.fd = fd, .frame_max = BROKER_FRAME_MAX, .next_seq = next_seq, .address = "fuzz:1"};
    FUZZ_HOLDS(broker_stream_init(b) == 0);
}

static void close_broker(struct broker *b)
{
    close(b->fd);
    broker_stream_free(b);
}

static void put_frames(struct bytes in, struct buf *out)
{
    static const uint8_t types[] = {AMQP_FRAME_METHOD, AMQP_FRAME_HEADER, AMQP_FRAME_BODY,
                                    AMQP_FRAME_HEARTBEAT};
    while (in.len > 0) {
        uint8_t kind = fuzz_take_u8(&in);
        struct bytes payload = fuzz_take_short(&in);
        uint8_t type = types[kind & 3];
        buf_put_u8(out, type);
        buf_put_u16(out, kind & 4 ? (kind >> 3) % 4 : BROKER_CHANNEL);
        buf_put_u32(out, (uint32_t)payload.len);
        buf_put_bytes(out, payload);
        buf_put_u8(out, AMQP_FRAME_END);
    }
}

static void check_event(const struct broker_event *ev, uint64_t next_seq)
{
    if (ev->kind == BROKER_EVENT_ACK || ev->kind == BROKER_EVENT_NACK)
        FUZZ_HOLDS(ev->tag > 0 && ev->tag < next_seq);
    if (ev->kind != BROKER_EVENT_DELIVERY && ev->kind != BROKER_EVENT_RETURN)
        return;
    FUZZ_HOLDS(ev->exchange.len <= 255 && ev->routing_key.len <= 255);
    FUZZ_HOLDS(ev->properties.len <= BROKER_FRAME_MAX);
    FUZZ_HOLDS(ev->body.data != NULL || ev->body.len > BODY_MAX);
    if (ev->body.data != NULL)
        FUZZ_HOLDS(ev->body.len <= BODY_MAX);
}

static void read_events(struct broker *b, uint64_t next_seq)
{
    struct arena arena;
    struct broker_event ev;
    struct err e = {0};
    int rc = 0;
    arena_init(&arena, 64 * 1024);
    for (int i = 0; i < EVENTS_MAX && rc == 0; i++) {
        arena_reset(&arena);
        rc = broker_next_event(b, &arena, BODY_MAX, 1, &ev, &e);
        if (rc == 0)
            check_event(&ev, next_seq);
    }
    if (rc != 0) {
        fuzz_check_reason(bytes_of_str(e.text));
        FUZZ_HOLDS(broker_is_dead(b));
        FUZZ_HOLDS(broker_next_event(b, &arena, BODY_MAX, 1, &ev, &e) != 0);
    }
    arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes rest = bytes_of(data, size);
    uint64_t next_seq = fuzz_take_u8(&rest) % 8;
    struct broker b;
    struct buf frames;
    int ends[2];
    buf_init(&frames, 65536);
    put_frames(rest, &frames);
    FUZZ_HOLDS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    if (frames.len > 0)
        FUZZ_HOLDS(frames.failed ||
                   send(ends[1], frames.data, frames.len, MSG_NOSIGNAL) == (ssize_t)frames.len);
    shutdown(ends[1], SHUT_WR);
    open_broker(&b, ends[0], next_seq);
    read_events(&b, next_seq);
    close_broker(&b);
    close(ends[1]);
    buf_free(&frames);
    return 0;
}
