/* What becomes of each refusal. */
#include "gateway/retry/retry.h"

#include "core/message/delay.h"

#include <stdio.h>

#define LINEAGE_KEEP_MS (INT64_C(30) * 86400000) /* after it went back: its queue may be long */

static int read_letter(struct retry *r, struct retry_delivery *d, struct err *e)
{
    const struct accept_input *input = &d->taken->input;
    size_t most = (size_t)r->runtime->config->intake.max_body;
    if (!input->body.data && input->body.len > 0)
        err_set(e, ERR_REJECT, "body: %zu bytes could not be read", input->body.len);
    else if (input->body.len > most)
        err_set(e, ERR_REJECT, "body: %zu bytes are too many (allowed: at most %zu, intake.max_body)",
                input->body.len, most);
    else if (dead_letter_read(input, &d->letter, e) == 0)
        return 0;
    if (e->kind != ERR_REJECT)
        return -1;
    inbox_refuse(&r->inbox, d->taken, e->text, METRIC_REJECTED_INVALID);
    err_clear(e);
    return 0;
}

static int read_all(struct retry *r, struct err *e)
{
    for (size_t i = 0; i < r->inbox.count; i++) {
        struct retry_delivery *d = &r->deliveries[i];
        *d = (struct retry_delivery){.taken = &r->inbox.deliveries[i]};
        if (read_letter(r, d, e) != 0)
            return -1;
    }
    return retry_read_lineages(r, e);
}

static int add_item(struct retry *r, size_t i, int failed, int64_t now_ms, struct err *e)
{
    struct retry_delivery *d = &r->deliveries[i];
    struct store_item *item = &r->items[r->item_count];
    struct message *m = &item->message;
    *item = (struct store_item){.redelivered = d->taken->redelivered};
    *m = (struct message){.due_ms = now_ms + d->wait_ms,
                          .counted_from_ms = now_ms,
                          .deadline_ms = deadline_of(d->letter.properties.headers),
                          .exchange = bytes_of_str(RETURN_EXCHANGE),
                          .routing_key = d->letter.routing_key,
                          .body = d->taken->input.body,
                          .hold = HOLD_GATEWAY};
    if (dead_letter_return(&d->letter, d->lineage, failed + 1, &r->inbox.arena, &m->properties, e) != 0)
        return -1;
    m->id = message_id_new(m->due_ms);
    r->item_count++;
    return 0;
}

static int add_failure(struct retry *r, size_t i, int failed, const struct retry_policy *p, struct err *e)
{
    struct retry_delivery *d = &r->deliveries[i];
    bool dead = d->dead;
    struct retry_failure *f = &r->failures[r->failure_count++];
    *f = (struct retry_failure){.delivery = i, .item = dead ? NULL : &r->items[r->item_count - 1]};
    f->failure = (struct lineage_failure){.id = d->lineage,
                                          .refusal = d->letter.refusal,
                                          .queue = d->letter.queue,
                                          .exchange = d->letter.exchange,
                                          .routing_key = d->letter.routing_key,
                                          .failed = failed,
                                          .reason = d->too_late ? DEATH_DEADLINE : d->letter.reason,
                                          .hash = d->letter.hash,
                                          .dead = dead,
                                          .message = dead ? NULL : &f->item->message.id,
                                          .body = d->taken->input.body,
                                          .deadline_ms = deadline_of(d->letter.properties.headers),
                                          .keep_ms = dead ? p->keep_dead_ms : d->wait_ms + LINEAGE_KEEP_MS};
    return dead ? dead_letter_return(&d->letter, d->lineage, 1, &r->inbox.arena, &f->failure.properties, e)
                : 0;
}

/* Does its deadline lie before that? */
static bool ends_before(const struct retry_delivery *d, int64_t ms)
{
    int64_t deadline_ms = deadline_of(d->letter.properties.headers);
    return deadline_ms > 0 && deadline_ms < ms;
}

static int decide(struct retry *r, size_t i, const struct retry_policy *p, int64_t now_ms, struct err *e)
{
    struct retry_delivery *d = &r->deliveries[i];
    int failed = retry_count_failures(r, i);
    if (failed <= 0) {
        d->taken->verdict = failed == 0 ? INBOX_DONE : INBOX_LATER;
        return 0;
    }
    bool again = (p->on & d->letter.reason) != 0 && failed < p->attempts;
    d->wait_ms = again ? retry_policy_wait_ms(p, failed, random_u32()) : 0;
    int64_t most_ms = r->runtime->config->delivery.max_delay_ms; /* there are no days beyond it */
    d->wait_ms = d->wait_ms < most_ms ? d->wait_ms : most_ms;
    d->too_late = again && ends_before(d, now_ms + d->wait_ms);
    d->dead = !again || d->too_late;
    if (!d->dead && add_item(r, i, failed, now_ms, e) != 0)
        return -1;
    return add_failure(r, i, failed, p, e);
}

int retry_decide(struct retry *r, struct err *e)
{
    struct retry_policy *policies;
    size_t policy_count;
    int64_t now_ms; /* about: waits are counted again when the batch is stored (store_accept) */
    r->item_count = r->failure_count = r->dead_count = r->copy_count = 0;
    if (lineage_policies(r->inbox.pg, &r->inbox.arena, &policies, &policy_count, e) != 0 ||
        inbox_now_ms(&r->inbox, &now_ms, e) != 0 || read_all(r, e) != 0)
        return -1;
    for (size_t i = 0; i < r->inbox.count; i++) {
        const struct retry_delivery *d = &r->deliveries[i];
        if (d->taken->verdict == INBOX_OPEN &&
            decide(r, i, retry_policy_find(policies, policy_count, d->letter.queue), now_ms, e) != 0)
            return -1;
    }
    return 0;
}
