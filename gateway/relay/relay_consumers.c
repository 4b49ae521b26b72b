/* Who reads the exit queues: one connection, with as many consumers at each queue as at the others.
 *
 * How much RabbitMQ sends ahead is the sum of their prefetches. That of the first round is small, for
 * RabbitMQ holds in its memory what it has sent and nobody has read: of large messages that is enough. When
 * many small ones come, a second round joins, and a third. While the database is away, what was delivered and
 * what is to be looked up stays unacknowledged, and further ones join when most of what one queue may send is
 * used by that; it may all have come by that one. The queues share what one alone would get. */
#include "amqp/topology/topology.h"
#include "amqp/topology/transport.h"
#include "core/base/names.h"
#include "gateway/relay/relay_internal.h"

#include <ctype.h>
#include <stdio.h>

#define ROUNDS_MAX 6
#define SMALL_BYTES 8192
#define ROUNDS_SMALL 3 /* some thousand a second, HANDOVER_SLACK_MS ahead */
#define TAG "exit/"    /* of a consumer: then the number of its queue, and that of its round */
#define TAG_SIZE 32

static const uint16_t prefetches[ROUNDS_MAX] = {500, 4000, 16000, 32000, 64000, 64000};

/* As of the exit queues there are now. */
static uint16_t prefetch_of(const struct reader *r, int round)
{
    return (uint16_t)(prefetches[round] / r->queues);
}

static void tag_consumer(int number, int round, char tag[TAG_SIZE])
{
    snprintf(tag, TAG_SIZE, TAG "%d/%d", number, round);
}

int relay_exit_number(const struct broker_event *ev)
{
    const size_t prefix = sizeof TAG - 1;
    int number = 0;
    if (!bytes_start_with_str(ev->text, TAG))
        return 0;
    for (size_t i = prefix; i < ev->text.len && isdigit(ev->text.data[i]); i++)
        number = number * 10 + ev->text.data[i] - '0';
    return number >= 1 && number <= EXIT_QUEUES_MAX ? number : 0;
}

static bool is_first(const struct reader *r)
{
    for (int i = 0; i < EXIT_QUEUES_MAX; i++)
        if (r->consumers[i] > 0)
            return false;
    return true;
}

static int add_consumer(struct reader *r, int number, struct err *e)
{
    char queue[TOPOLOGY_EXIT_NAME_SIZE], tag[TAG_SIZE];
    int *consumers = &r->consumers[number - 1];
    uint16_t prefetch = prefetch_of(r, *consumers);
    topology_exit_queue(number, queue);
    tag_consumer(number, *consumers, tag);
    int rc = is_first(r) ? broker_consume(r->broker, queue, tag, prefetch, e)
                         : broker_consume_more(r->broker, queue, tag, prefetch, e);
    if (rc != 0)
        return -1;
    atomic_store(&r->handover->consumers[number - 1], ++*consumers);
    return 0;
}

static bool is_left_out(struct reader *r, int number)
{
    return (atomic_load(&r->relay->left_out) & 1u << (number - 1)) != 0;
}

int relay_consume_all(struct reader *r, struct err *e)
{
    r->queues = atomic_load(&r->handover->exit_queues);
    r->rounds = r->rounds > 0 ? r->rounds : 1;
    r->prefetch_sum = 0;
    for (int i = 0; i < r->rounds; i++)
        r->prefetch_sum += prefetch_of(r, i);
    for (int number = 1; number <= r->queues; number++)
        while (!is_left_out(r, number) && r->consumers[number - 1] < r->rounds)
            if (add_consumer(r, number, e) != 0)
                return -1;
    return 0;
}

int relay_adapt_consumers(struct reader *r, struct err *e)
{
    bool away = server_status_away_ms(&r->runtime->postgres) > 0;
    size_t waiting, count = relay_book_count(&r->pipeline->book, away, &waiting);
    size_t bytes = atomic_load(&r->pipeline->relayed.bytes), held = atomic_load(&r->pipeline->relayed.count);
    if (r->draining)
        return 0;
    bool small =
        r->rounds < ROUNDS_SMALL && count > (size_t)r->prefetch_sum / 4 && bytes < held * SMALL_BYTES;
    waiting += r->foreign_count;
    if (r->rounds < ROUNDS_MAX && (small || waiting > (size_t)r->prefetch_sum / 2))
        r->rounds++;
    relay_probe_again(r);
    return relay_consume_all(r, e);
}

int relay_cancel_consumers(struct reader *r, struct err *e)
{
    char tag[TAG_SIZE];
    for (int i = 0; i < EXIT_QUEUES_MAX; i++)
        for (; r->consumers[i] > 0; r->consumers[i]--) {
            tag_consumer(i + 1, r->consumers[i] - 1, tag);
            if (broker_cancel_consume(r->broker, tag, e) != 0)
                return -1;
        }
    relay_forget_consumers(r, false);
    return 0;
}

void relay_forget_consumers(struct reader *r, bool counted)
{
    for (int i = 0; i < EXIT_QUEUES_MAX; i++) {
        if (counted)
            atomic_fetch_add(&r->relay->lost_consumers[i], r->consumers[i]);
        r->consumers[i] = 0;
        atomic_store(&r->handover->consumers[i], 0);
    }
    r->rounds = 0;
}
