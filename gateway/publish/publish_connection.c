/* A publisher's connection: opened, exchanged for another one, asked whether it still answers. */
#include "gateway/publish/publish_internal.h"
#include "gateway/runtime/sessions.h"

#define IN_FLIGHT_LEAST 4
#define IN_FLIGHT_ENOUGH 64
#define IN_FLIGHT_OVERDUE                                                                                    \
    256 /* while something is overdue: a classic queue that gets fewer is idle after each, and flushes */
#define IN_FLIGHT_MOST 512
#define SILENT_MS 250        /* after a ping: the channel is held up, or the broker */
#define BYTES_PER_MS 4096    /* but what is large takes its time */
#define RETURN_BODY_MAX 1024 /* the body of a returned message is of no use */

void publisher_begin_flight(struct publisher *p)
{
    confirms_reset(&p->confirms);
    p->stalled = 0;
    p->pinging = false;
    p->ping_tag = p->answered_tag = 0;
    p->unheard_ms = 0;
    p->answered = false;
    p->heard_ms = clock_monotonic_ms();
    flight_window_begin(&p->window, IN_FLIGHT_LEAST, IN_FLIGHT_ENOUGH, IN_FLIGHT_OVERDUE, IN_FLIGHT_MOST);
}

struct broker *publisher_dial(struct publisher *p, struct err *e)
{
    struct broker *b = sessions_open_broker(p->runtime, p->role->name, e);
    if (!b || broker_confirm_select(b, e) == 0)
        return b;
    broker_drop(b);
    return NULL;
}

struct broker *publisher_swap_broker(struct publisher *p, struct broker *b)
{
    struct broker *old = p->broker;
    p->broker = b;
    publisher_begin_flight(p);
    return old;
}

void publisher_set_broker(struct publisher *p, struct broker *b)
{
    broker_abort(publisher_swap_broker(p, b));
}

int publisher_next_event(struct publisher *p, struct broker *b, struct broker_event *ev, struct err *e)
{
    arena_reset(&p->arena);
    return broker_next_event(b, &p->arena, RETURN_BODY_MAX, 0, ev, e);
}

int publisher_ping(struct publisher *p, struct err *e)
{
    p->pinging = true;
    p->pinged_ms = clock_monotonic_ms();
    p->ping_tag = p->confirms.next - 1;
    return broker_ping(p->broker, e);
}

int64_t publisher_silent_ms(const struct publisher *p, int64_t now_ms)
{
    int64_t limit_ms = SILENT_MS + (int64_t)(p->confirms.bytes / BYTES_PER_MS);
    int64_t since_ms = p->pinged_ms > p->heard_ms ? p->pinged_ms : p->heard_ms;
    return p->pinging && now_ms - since_ms > limit_ms ? now_ms - since_ms : 0;
}
