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

/* Messages to one address that are refused for one reason. */
struct group {
    char exchange[90], key[90], queue[90]; /* queue: of what goes back to it; else "" */
    char reason[200];
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

static void advise(struct doctor *d, const struct group *g)
{
    static const char then[] = "they are tried again by themselves; postdate list --retrying has each";
    const char *exchange = *g->exchange != '\0' ? g->exchange : "amq.default";
    if (strstr(g->reason, "ACCESS_REFUSED") != NULL)
        doctor_remedy(d,
                      "let '%s' write to exchange '%s': add its name to the second pattern, which "
                      "rabbitmqctl list_user_permissions %s shows, with rabbitmqctl set_permissions; %s",
                      d->target.user, exchange, d->target.user, then);
    else if (strstr(g->reason, "NO_ROUTE") != NULL && *g->queue != '\0')
        doctor_remedy(d, "declare queue '%s' again, or cancel them; %s", g->queue, then);
    else if (strstr(g->reason, "NO_ROUTE") != NULL)
        doctor_remedy(d, "bind a queue to exchange '%s' with a key that matches '%s'; %s", exchange, g->key,
                      then);
    else if (strstr(g->reason, "NOT_FOUND") != NULL)
        doctor_remedy(d, "declare exchange '%s'; %s", exchange, then);
    else if (strstr(g->reason, "nack") != NULL)
        doctor_remedy(d, "make room in the queues there: consume, or raise max-length; %s", then);
    else
        doctor_remedy(d, "put right what the reason names; %s", then);
}

static void report_group(struct doctor *d, const struct group *g)
{
    char address[300];
    if (*g->queue != '\0')
        snprintf(address, sizeof address, "queue '%s'", g->queue);
    else
        snprintf(address, sizeof address, "exchange '%s', routing key '%s'", g->exchange, g->key);
    doctor_report(d, FINDING_WARN, "messages.retrying", "%d refused or in doubt: %s: %s", g->count, address,
                  g->reason);
    advise(d, g);
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
    if (lookup_list(d->pg, &filter, &page, add_record, &all, &e) != 0) {
        doctor_error(d, "messages.retrying", &e);
        return;
    }
    for (int i = 0; i < all.count; i++) {
        report_group(d, &all.list[i]);
        told += all.list[i].count;
    }
    if (d->status.retrying > told && (told > 0 || page.given_up)) {
        doctor_report(d, FINDING_WARN, "messages.retrying", "%" PRId64 " more", d->status.retrying - told);
        doctor_remedy(d, "postdate list --retrying has each, with its reason");
    } else if (told == 0) {
        doctor_report(d, FINDING_OK, "messages.retrying", "none");
    }
}
