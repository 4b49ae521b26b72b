/* What RabbitMQ refuses, and the gateway tries again: by address and reason, with what makes it go. */
#include "core/base/timestamp.h"
#include "core/message/dead_letter.h"
#include "gateway/cli/doctor/doctor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define GROUPS_MAX 5
#define LOOK_AT 200 /* messages */
#define BUDGET_MS 2000
#define REMEDY_SIZE 800

/* Messages to one address that are refused for one reason. */
struct group {
    char exchange[90], key[90], queue[90]; /* queue: of what goes back to it; else "" */
    char reason[400];
    int count;
};

struct groups {
    struct group list[GROUPS_MAX];
    int count, looked;
};

static bool add_record(void *ctx, const struct message_record *r)
{
    struct groups *all = ctx;
    const struct message *m = &r->message;
    struct group one = {.count = 1};
    bytes_printable(m->exchange, one.exchange, sizeof one.exchange);
    bytes_printable(m->routing_key, one.key, sizeof one.key);
    bytes_printable(dead_letter_return_queue(m), one.queue, sizeof one.queue);
    bytes_printable(r->error, one.reason, sizeof one.reason);
    all->looked++;
    for (int i = 0; i < all->count; i++) {
        struct group *g = &all->list[i];
        if (strcmp(g->exchange, one.exchange) == 0 && strcmp(g->key, one.key) == 0 &&
            strcmp(g->queue, one.queue) == 0 && strcmp(g->reason, one.reason) == 0) {
            g->count++;
            return true;
        }
    }
    if (all->count < GROUPS_MAX)
        all->list[all->count++] = one;
    return true;
}

static const char *advise(const struct doctor *d, const struct group *g, char out[REMEDY_SIZE])
{
    const char *exchange = *g->exchange != '\0' ? g->exchange : "amq.default", *user = d->target.user;
    if (strstr(g->reason, "internal exchange") != NULL)
        snprintf(
            out, REMEDY_SIZE,
            "no client may publish to an internal exchange, whatever its rights: declare '%s' anew without "
            "internal, or cancel them and name an exchange that is bound to it",
            exchange);
    else if (strstr(g->reason, "access to topic") != NULL)
        snprintf(out, REMEDY_SIZE,
                 "let '%s' write routing key '%s' to exchange '%s': its topic permissions, which rabbitmqctl "
                 "list_user_topic_permissions %s shows, with rabbitmqctl set_topic_permissions",
                 user, g->key, exchange, user);
    else if (strstr(g->reason, "access to queue") != NULL)
        snprintf(out, REMEDY_SIZE,
                 "let '%s' write to queue '%s', which it binds: add its name to the second pattern, which "
                 "rabbitmqctl list_user_permissions %s shows, with rabbitmqctl set_permissions",
                 user, g->queue, user);
    else if (strstr(g->reason, "ACCESS_REFUSED") != NULL)
        snprintf(out, REMEDY_SIZE,
                 "let '%s' write to exchange '%s': add its name to the second pattern, which "
                 "rabbitmqctl list_user_permissions %s shows, with rabbitmqctl set_permissions",
                 user, exchange, user);
    else if (strstr(g->reason, "NO_ROUTE") != NULL && *g->queue != '\0')
        snprintf(out, REMEDY_SIZE, "declare queue '%s' again, or cancel them", g->queue);
    else if (strstr(g->reason, "NO_ROUTE") != NULL && *g->exchange == '\0')
        snprintf(out, REMEDY_SIZE,
                 "declare queue '%s': the default exchange leads to the queue with the routing key's name",
                 g->key);
    else if (strstr(g->reason, "NO_ROUTE") != NULL)
        snprintf(out, REMEDY_SIZE, "bind a queue to exchange '%s' with a key that matches '%s'", exchange,
                 g->key);
    else if (strstr(g->reason, "NOT_FOUND") != NULL)
        snprintf(out, REMEDY_SIZE, "declare exchange '%s'", exchange);
    else if (strstr(g->reason, "nack") != NULL)
        return "make room in the queues there: consume, or raise max-length";
    else
        return "put right what the reason names";
    return out;
}

static void report_group(struct doctor *d, const struct group *g)
{
    char address[300], remedy[REMEDY_SIZE];
    if (*g->queue != '\0')
        snprintf(address, sizeof address, "queue '%s'", g->queue);
    else
        snprintf(address, sizeof address, "exchange '%s', routing key '%s'", g->exchange, g->key);
    doctor_warn(d, "messages.retrying",
                "%d refused or in doubt: %s: %s" REMEDY
                "%s; they are tried again by themselves; postdate list --retrying has each",
                g->count, address, g->reason, advise(d, g, remedy));
}

void doctor_check_retrying(struct doctor *d)
{
    const struct lookup_filter filter = {.retrying = true, .due_before_ms = TIMESTAMP_MAX_MS};
    struct lookup_page page = {.limit = LOOK_AT, .budget_ms = BUDGET_MS};
    struct groups all = {.count = 0};
    struct err e;
    int told = 0;
    if (inspect_target(d->config->amqp.url, &d->target, &e) != 0)
        d->target.user[0] = '\0'; /* broker.connection says why */
    if (lookup_list(d->pg, &filter, &page, add_record, &all, &e) != 0)
        return doctor_error(d, "messages.retrying", &e);
    for (int i = 0; i < all.count; i++) {
        report_group(d, &all.list[i]);
        told += all.list[i].count;
    }
    if (d->status.retrying > told && (told > 0 || page.given_up)) {
        doctor_warn(d, "messages.retrying",
                    "%" PRId64 " more" REMEDY "postdate list --retrying has each, with its reason",
                    d->status.retrying - told);
    } else if (told == 0) {
        doctor_ok(d, "messages.retrying", "none");
    }
}
