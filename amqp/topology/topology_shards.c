#include "amqp/topology/topology_shards.h"

#include <stdio.h>

void shards_queue_name(const char *first, int number, char out[SHARDS_NAME_SIZE])
{
    if (number == 1)
        snprintf(out, SHARDS_NAME_SIZE, "%s", first);
    else
        snprintf(out, SHARDS_NAME_SIZE, "%s.%d", first, number);
}

/* --- one binding each */

static int bind_number(struct broker *b, const struct shards *s, size_t way, int number, struct err *e)
{
    char name[SHARDS_NAME_SIZE];
    const struct broker_binding x = {.to = name, .from = s->ways[way].exchange, .key = SHARDS_WEIGHT};
    shards_queue_name(s->queue, number, name);
    return broker_bind_queue(b, &x, e);
}

static int unbind_numbers(struct broker *b, const struct shards *s, size_t way, int from, int to,
                          struct err *e)
{
    char name[SHARDS_NAME_SIZE];
    const struct broker_binding x = {.to = name, .from = s->ways[way].exchange, .key = SHARDS_WEIGHT};
    for (int i = from; i <= to; i++) {
        shards_queue_name(s->queue, i, name);
        if (broker_unbind_queue(b, &x, e))
            return -1;
    }
    return 0;
}

static struct broker_binding of_source(const struct shards *s, size_t source, const char *to)
{
    return (struct broker_binding){to, s->sources[source].exchange, NULL, s->args};
}

/* rc: of binding a source. missing_fine: an exchange that was a source once may be gone. */
static int end_binding(struct broker *b, int rc, bool missing_fine, struct err *e)
{
    if (rc == 0)
        return 0;
    if (e->kind != ERR_NOT_FOUND || !missing_fine || broker_recover(b, e))
        return -1;
    err_clear(e);
    return 0;
}

static int bind_sources(struct broker *b, const struct shards *s, bool missing_fine, struct err *e)
{
    for (size_t i = 0; i < s->source_count; i++) {
        const char *to = s->sources[i].to;
        const struct broker_binding x = of_source(s, i, to ? to : s->ways[s->way].exchange);
        if (end_binding(b, broker_bind_exchange(b, &x, e), missing_fine, e))
            return -1;
    }
    return 0;
}

/* Those that lead to another exchange have a part that must not go to the queue; that exchange is a source,
 * too. */
static int bind_direct(struct broker *b, const struct shards *s, struct err *e)
{
    for (size_t i = 0; i < s->source_count; i++) {
        const struct broker_binding x = of_source(s, i, s->queue);
        if (!s->sources[i].to && end_binding(b, broker_bind_queue(b, &x, e), true, e))
            return -1;
    }
    return 0;
}

static int unbind_direct(struct broker *b, const struct shards *s, struct err *e)
{
    for (size_t i = 0; i < s->source_count; i++) {
        const struct broker_binding x = of_source(s, i, s->queue);
        if (broker_unbind_queue(b, &x, e))
            return -1;
    }
    return 0;
}

/* Of a source that leads to another exchange also the wanted way: a gateway at an older node led it there. */
static int unbind_ways(struct broker *b, const struct shards *s, bool wanted_too, struct err *e)
{
    for (size_t i = 0; i < s->source_count; i++)
        for (size_t w = 0; w < s->way_count; w++) {
            const struct broker_binding x = of_source(s, i, s->ways[w].exchange);
            if ((w != s->way || s->sources[i].to || wanted_too) && broker_unbind_exchange(b, &x, e))
                return -1;
        }
    return 0;
}

/* --- the steps */

int shards_prepare(struct broker *b, const struct shards *s, struct err *e)
{
    const struct shards_way *way = &s->ways[s->way];
    const struct broker_exchange x = {
        .name = way->exchange, .type = way->type, .internal = true, .args = way->args};
    if (broker_declare_exchange_as(b, &x, e)) {
        if (e->kind == ERR_CONFIG)
            broker_lacks_type(b, &x, way->plugin, e);
        return -1;
    }
    return bind_number(b, s, s->way, 1, e);
}

/* Somebody may have deleted the first queue, and with it its bindings: a way that still feeds a source must
 * not lead nowhere. */
static int narrow_way(struct broker *b, const struct shards *s, size_t way, struct err *e)
{
    int there = way == s->way ? 1 : broker_has_exchange(b, s->ways[way].exchange, e);
    if (there <= 0)
        return there;
    return bind_number(b, s, way, 1, e) || unbind_numbers(b, s, way, 2, s->most, e) ? -1 : 0;
}

/* Khepri keeps the bindings of a consistent-hash exchange and its ring apart: what got lost in the ring comes
 * back only with a binding that was not there. */
static int renew_first(struct broker *b, const struct shards *s, struct err *e)
{
    return unbind_numbers(b, s, s->way, 1, 1, e) || bind_number(b, s, s->way, 1, e) ? -1 : 0;
}

/* While the way that is wanted is put right, the sources lead to the first queue by themselves. */
int shards_narrow(struct broker *b, const struct shards *s, struct err *e)
{
    if (shards_prepare(b, s, e))
        return -1;
    for (size_t w = 0; w < s->way_count; w++)
        if (narrow_way(b, s, w, e))
            return -1;
    return bind_direct(b, s, e) || renew_first(b, s, e) || bind_sources(b, s, true, e) ||
                   unbind_direct(b, s, e) || unbind_ways(b, s, false, e)
               ? -1
               : 0;
}

int shards_leave(struct broker *b, const struct shards *s, struct err *e)
{
    return unbind_ways(b, s, true, e);
}

int shards_widen(struct broker *b, const struct shards *s, struct err *e)
{
    if (shards_prepare(b, s, e) || bind_sources(b, s, false, e) || unbind_direct(b, s, e) ||
        unbind_ways(b, s, false, e))
        return -1;
    for (int i = 2; i <= s->queues; i++)
        if (bind_number(b, s, s->way, i, e))
            return -1;
    return unbind_numbers(b, s, s->way, s->queues + 1, s->most, e);
}
