#include "gateway/deliver/inflight.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct handing *handing_new(struct message_id id, size_t count)
{
    struct handing *h = calloc(1, sizeof *h);
    if (!h)
        return NULL;
    h->id = id;
    h->open = count;
    atomic_init(&h->holders, 1);
    return h;
}

void handing_hold(struct handing *h)
{
    atomic_fetch_add(&h->holders, 1);
}

void handing_release(struct handing *h)
{
    if (h && atomic_fetch_sub(&h->holders, 1) == 1)
        free(h);
}

static void count_in_budget(const struct inflight *h)
{
    atomic_fetch_add(&h->budget->count, 1);
    atomic_fetch_add(&h->budget->bytes, h->size);
}

struct inflight *inflight_new(const struct claimed_row *row, int32_t instance, struct inflight_budget *budget)
{
    size_t size = message_size(&row->message);
    struct inflight *h = malloc(sizeof *h);
    uint8_t *at = malloc(size + 1);
    if (!h || !at) {
        free(h);
        free(at);
        return NULL;
    }
    *h = (struct inflight){.budget = budget,
                           .instance = instance,
                           .attempts = row->attempts,
                           .doubt = row->in_doubt ? INFLIGHT_DOUBT_SENT : INFLIGHT_DOUBT_NONE,
                           .publish = {.isolate = row->isolate},
                           .at_ms = row->next_at_ms,
                           .let_go_ms = row->kept_back ? row->clock_us / 1000 : 0,
                           .message = row->message,
                           .size = sizeof *h + size,
                           .data = at};
    struct message *m = &h->message;
    m->exchange = bytes_copy(&at, m->exchange);
    m->routing_key = bytes_copy(&at, m->routing_key);
    m->key = bytes_copy(&at, m->key);
    m->properties = bytes_copy(&at, m->properties);
    m->body = bytes_copy(&at, m->body);
    h->back = dead_letter_address_of(m);
    count_in_budget(h);
    return h;
}

struct inflight *inflight_leave_ghost(struct inflight *h)
{
    struct inflight *row = malloc(sizeof *row);
    if (!row)
        return NULL;
    *row = *h;
    row->next = row->prev = NULL;
    *h = (struct inflight){.next = h->next,
                           .prev = h->prev,
                           .budget = h->budget,
                           .origin = inflight_is_relayed(h) ? INFLIGHT_RELAYED : INFLIGHT_CLAIMED,
                           .doubt = INFLIGHT_DOUBT_GHOST,
                           .at_ms = h->at_ms,
                           .publish = {.tag = h->publish.tag,
                                       .published_ms = h->publish.published_ms,
                                       .destination = h->publish.destination,
                                       .unproven = h->publish.unproven,
                                       /* Without content, a return's basic.return finds nobody. Its confirm
                                        * alone is no delivery, so its row is published again in any case. */
                                       .returned = h->publish.returned || h->back.queue.len > 0},
                           .message = {.id = h->message.id, .due_ms = h->message.due_ms},
                           .size = sizeof *h};
    count_in_budget(h);
    return row;
}

void inflight_drop_content(struct inflight *h)
{
    struct message *m = &h->message;
    m->exchange = m->routing_key = m->key = m->properties = m->body = bytes_of("", 0);
    h->back = (struct dead_letter_address){0};
    free(h->data);
    h->data = NULL;
    atomic_fetch_sub(&h->budget->bytes, h->size);
    h->size = 0;
}

void inflight_free(struct inflight *h)
{
    if (!h)
        return;
    atomic_fetch_sub(&h->budget->bytes, h->size);
    atomic_fetch_sub(&h->budget->count, 1);
    claim_range_release(h->range);
    handing_release(h->handing);
    free(h->error);
    free(h->data);
    free(h);
}

void inflight_free_list(struct inflight *list)
{
    while (list)
        inflight_free(inflight_pop(&list));
}

const char *inflight_name(const struct inflight *h, char out[INFLIGHT_NAME_SIZE])
{
    char id[MESSAGE_ID_TEXT_SIZE], shown[40];
    message_id_format(h->message.id, id);
    if (h->back.id.len > 0)
        snprintf(out, INFLIGHT_NAME_SIZE, "%s (x-postdate-id %s)", id,
                 bytes_printable(h->back.id, shown, sizeof shown));
    else
        snprintf(out, INFLIGHT_NAME_SIZE, "%s", id);
    return out;
}

void inflight_set_error(struct inflight *h, enum inflight_cause cause, const char *text)
{
    char printable[400];
    struct bytes b = bytes_of_str(text);
    char *copy =
        !text ? NULL : strdup(bytes_is_text(b) ? text : bytes_printable(b, printable, sizeof printable));
    free(h->error); /* only now: text may be the old one */
    h->error = copy;
    h->cause = cause;
}
