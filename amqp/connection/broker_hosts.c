#include "amqp/connection/broker_hosts.h"

#include "amqp/connection/broker_internal.h"
#include "core/base/clock.h"
#include "core/base/random.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LATELY_MS 30000
#define SEATS_MAX 16

struct host {
    char address[BROKER_ADDRESS_MAX], why[300];
    int64_t failed_ms; /* monotonic; 0: never, or it has worked since */
    bool away, told;   /* told: that it is, or that it is not */
};

struct broker_hosts {
    pthread_mutex_t lock; /* guards all else */
    struct host hosts[BROKER_HOSTS_MAX];
    struct {
        char who[64], address[BROKER_ADDRESS_MAX];
    } seats[SEATS_MAX];
};

struct broker_hosts *broker_hosts_new(void)
{
    struct broker_hosts *h = calloc(1, sizeof(*h));
    if (h) {
        pthread_mutex_init(&h->lock, NULL);
        for (size_t i = 0; i < BROKER_HOSTS_MAX; i++)
            h->hosts[i].told = true;
    }
    return h;
}

void broker_hosts_free(struct broker_hosts *h)
{
    if (h) {
        pthread_mutex_destroy(&h->lock);
        free(h);
    }
}

static void shuffle_order(size_t count, size_t order[])
{
    for (size_t i = 0; i < count; i++) {
        size_t j = random_u32() % (i + 1);
        order[i] = order[j];
        order[j] = i;
    }
}

void broker_hosts_order(struct broker_hosts *h, size_t count, size_t order[static BROKER_HOSTS_MAX])
{
    int64_t from_ms = clock_monotonic_ms() - LATELY_MS, failed_ms[BROKER_HOSTS_MAX] = {0};
    shuffle_order(count, order);
    if (!h)
        return;
    pthread_mutex_lock(&h->lock);
    for (size_t i = 0; i < count; i++)
        failed_ms[i] = h->hosts[i].failed_ms > from_ms ? h->hosts[i].failed_ms : 0;
    pthread_mutex_unlock(&h->lock);
    for (size_t i = 1; i < count; i++) { /* by insertion: what is equal stays as it was drawn */
        size_t x = order[i], j = i;
        for (; j > 0 && failed_ms[order[j - 1]] > failed_ms[x]; j--)
            order[j] = order[j - 1];
        order[j] = x;
    }
}

void broker_hosts_worked(struct broker_hosts *h, size_t i)
{
    pthread_mutex_lock(&h->lock);
    struct host *x = &h->hosts[i];
    x->failed_ms = 0;
    if (x->away) {
        x->told = !x->told; /* an absence that nobody was told of is no news */
        x->away = false;
    }
    pthread_mutex_unlock(&h->lock);
}

void broker_hosts_failed(struct broker_hosts *h, size_t i, const struct err *why, const char *address)
{
    pthread_mutex_lock(&h->lock);
    struct host *x = &h->hosts[i];
    x->failed_ms = clock_monotonic_ms();
    if (why && !x->away) {
        x->told = !x->told;
        x->away = true;
        snprintf(x->why, sizeof(x->why), "%.*s", (int)sizeof(x->why) - 1, why->text);
        snprintf(x->address, sizeof(x->address), "%s", address);
    }
    pthread_mutex_unlock(&h->lock);
}

bool broker_hosts_take_news(struct broker_hosts *h, struct broker_host_news *out)
{
    bool found = false;
    pthread_mutex_lock(&h->lock);
    for (size_t i = 0; i < BROKER_HOSTS_MAX && !found; i++) {
        struct host *x = &h->hosts[i];
        if (!x->told) {
            found = x->told = true;
            out->back = !x->away;
            memcpy(out->address, x->address, sizeof(out->address));
            memcpy(out->why, x->why, sizeof(out->why));
        }
    }
    pthread_mutex_unlock(&h->lock);
    return found;
}

bool broker_hosts_moved(struct broker_hosts *h, const char *who, const struct broker *b,
                        char before[static BROKER_ADDRESS_MAX])
{
    bool moved = false;
    pthread_mutex_lock(&h->lock);
    for (size_t i = 0; i < SEATS_MAX && b->host_count > 1; i++) {
        if (h->seats[i].who[0] != '\0' && strcmp(h->seats[i].who, who) != 0)
            continue;
        moved = strcmp(h->seats[i].address, b->address) != 0;
        memcpy(before, h->seats[i].address, BROKER_ADDRESS_MAX);
        snprintf(h->seats[i].who, sizeof(h->seats[i].who), "%s", who);
        memcpy(h->seats[i].address, b->address, BROKER_ADDRESS_MAX);
        break;
    }
    pthread_mutex_unlock(&h->lock);
    return moved;
}
