/* The fast publisher: to exchanges that are known to take messages, and destinations that confirm. */
#include "gateway/publish/publish_internal.h"
#include "gateway/runtime/log.h"

#include <stddef.h>

#define PING_MS 50 /* a publish that nothing followed from the broker for so long makes a ping */
#define PARKED_EVERY_MS 500
#define SUSPECTS 8 /* a channel is held up by one of the first that are unconfirmed */

/* Nothing more goes to a connection that does not answer: it would wait there, and be in doubt. */
static bool has_room(struct publisher *p)
{
    return publisher_silent_ms(p, clock_monotonic_ms()) == 0 && publisher_window_has_room(p);
}

static void announce_fast(struct publisher *p, bool ready)
{
    atomic_store(&p->runtime->publishing, ready);
    atomic_store(&p->runtime->metrics.broker_blocked, p->blocked);
    if (ready)
        notifier_notify(&p->runtime->claimer_notifier);
}

/* Has something been unconfirmed for long? */
static bool is_lagging(const struct publisher *p, int64_t now_ms)
{
    return p->confirms.oldest && now_ms - p->confirms.oldest->published_ms > PING_MS;
}

static enum destination_verdict admit_message(struct publisher *p, struct inflight *h)
{
    int64_t now_ms = clock_monotonic_ms();
    return destination_cache_admit(p->destinations, h, is_lagging(p, now_ms), now_ms);
}

/* It was admitted in vain. */
static void reject_admitted(struct publisher *p, struct inflight *h, const char *reason)
{
    publisher_left(p, h, false);
    publisher_refuse(p, h, reason);
}

static bool has_parked(struct publisher *p)
{
    return destination_cache_is_ready(p->destinations);
}

static int take_parked(struct publisher *p, struct inflight **h)
{
    enum destination_verdict v = DESTINATION_GOOD;
    int64_t now_ms = clock_monotonic_ms();
    struct destination_cache *cache = p->destinations;
    while ((*h = destination_cache_unpark(cache, is_lagging(p, now_ms), now_ms, &v)) != NULL) {
        struct inflight left = {.destination = (*h)->destination, .unproven = (*h)->unproven};
        bool ours = publisher_keep_ours(p, *h);
        if (v == DESTINATION_GOOD && !ours)
            publisher_left(p, &left, false);
        if (ours && publisher_send_on(p, *h, v))
            return 1;
    }
    return 0;
}

static void release_parked(struct publisher *p)
{
    struct inflight *all = destination_cache_unpark_all(p->destinations);
    while (all)
        pipeline_settle(p->pipeline, inflight_pop(&all), SETTLE_RELEASE);
}

static void check_destination(struct publisher *p, const struct inflight *h, int64_t now_ms)
{
    struct inflight *parked = NULL;
    if (!destination_cache_check(p->destinations, h, now_ms, &parked))
        return;
    while (parked)
        publisher_wait(p, inflight_pop(&parked));
}

static void tell_news(struct publisher *p, int64_t now_ms)
{
    char name[DESTINATION_NAME_SIZE];
    int news = destination_cache_news(p->destinations, now_ms, name, sizeof name);
    int stalled = p->destinations->stalled;
    if (atomic_exchange(&p->runtime->metrics.stalled, stalled) > 0 && stalled == 0)
        notifier_notify(&p->runtime->claimer_notifier); /* what was put back need not wait any longer */
    if (news > 0)
        log_warning(
            "RabbitMQ confirms nothing that goes to %s: is a queue there slow, or has it no majority of its "
            "nodes, or is the connection dead? Such messages wait; all others are published",
            name);
    else if (news < 0)
        log_info("RabbitMQ confirms everything again");
}

static void tell_refusals(struct publisher *p, int64_t now_ms)
{
    struct refusals *refusals = &p->destinations->refusals;
    struct refusal_news news;
    atomic_store(&p->runtime->metrics.refusing, refusals_count(refusals, now_ms));
    while (refusals_news(refusals, now_ms, &news)) {
        if (news.over && news.taken)
            log_info("Messages to %s are no longer refused", news.name);
        else if (news.over)
            log_info("No message to %s was refused lately, nor taken: none was tried, or its queue confirms "
                     "nothing",
                     news.name);
        else
            log_warning("Messages to %s are refused: %s. They are tried again; all others are published",
                        news.name, news.reason);
    }
}

static void isolate_first(struct publisher *p)
{
    int n = 0;
    for (const struct inflight *h = p->confirms.oldest; h && n < SUSPECTS; h = h->next)
        n += !h->released && destination_cache_isolate(p->destinations, h->destination);
}

/* The first of what is in flight may be to blame. What was parked is asked about again. */
static void blame_first(struct publisher *p, int64_t now_ms)
{
    isolate_first(p);
    destination_cache_wary(p->destinations, true, now_ms);
    struct inflight *all = destination_cache_unpark_all(p->destinations);
    while (all)
        publisher_send_to(p, inflight_pop(&all), p->queue);
    destination_cache_landed(p->destinations);
}

static int watch_unconfirmed(struct publisher *p, struct err *e)
{
    int64_t now_ms = clock_monotonic_ms();
    if (!publisher_check_unconfirmed(p, now_ms))
        return 0;
    tell_news(p, now_ms);
    tell_refusals(p, now_ms);
    if (now_ms - p->parked_ms > PARKED_EVERY_MS) {
        p->parked_ms = now_ms;
        destination_cache_look_again(p->destinations);
    }
    int64_t silent_ms = publisher_silent_ms(p, now_ms);
    if (silent_ms > 0)
        return publisher_end_silence(p, now_ms, silent_ms, e);
    if (!p->pinging && p->unheard_ms && now_ms - p->unheard_ms > PING_MS)
        return publisher_ping(p, e);
    return 0;
}

static void give_up_fast(struct publisher *p, const struct publisher_end *end)
{
    destination_cache_landed(p->destinations);
    publisher_doubt_all(p, &p->confirms, end);
}

const struct publisher_role publisher_fast = {
    .name = "postdate publisher",
    .up = UP_FAST,
    .queue = offsetof(struct pipeline, fast),
    .announce = announce_fast,
    .watch = watch_unconfirmed,
    .give_up = give_up_fast,
    .has_room = has_room,
    .route = publisher_route,
    .ask = admit_message,
    .compose = publisher_compose,
    .reject = reject_admitted,
    .on_ack = publisher_acked,
    .on_nack = publisher_nacked,
    .on_lagging = check_destination,
    .on_held_up = blame_first,
    .take_parked = take_parked,
    .has_parked = has_parked,
    .release_parked = release_parked,
};
