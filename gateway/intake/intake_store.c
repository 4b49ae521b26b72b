#include "gateway/intake/intake.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/startup.h"

#include "core/base/clock.h"
#include "core/base/timestamp.h"
#include "core/message/headers.h"
#include "core/message/wire.h"
#include "sql/pipeline/commit_check.h"
#include <string.h>

#define PATIENCE_MS                                                                                          \
    15000 /* how long a batch waits for the database with the broker's connection unattended */
#define PAUSE_MS 100

static struct bytes message_id_of(struct bytes properties)
{
    struct wire_properties p;
    if (wire_properties_read(properties, &p, NULL) != 0 || !(p.flags & WIRE_MESSAGE_ID))
        return (struct bytes){0};
    return bytes_is_text(p.message_id) ? p.message_id : (struct bytes){0};
}

#define MISSPELT_SAY_MS 60000

/* It is what its publisher asked for, as far as anybody can tell; but perhaps not what was meant. */
static void look_for_misspelt(struct intake *in, const struct message *m, int64_t now_ms)
{
    struct wire_properties p;
    struct bytes name;
    char shown[40];
    int64_t mono_ms = clock_monotonic_ms();
    if (m->due_ms > now_ms || wire_properties_read(m->properties, &p, NULL) != 0 ||
        !headers_near_delay(p.headers, &name))
        return;
    metrics_add(&in->runtime->metrics, METRIC_INTAKE_MISSPELT, 1);
    if (in->misspelt_said_ms > 0 && mono_ms - in->misspelt_said_ms < MISSPELT_SAY_MS)
        return;
    in->misspelt_said_ms = mono_ms;
    log_warning("a message is due at once: it has the header \"%s\" and no " HEADER_X_DELAY
                "; postdate_intake_misspelt_total counts such messages",
                bytes_printable(name, shown, sizeof shown));
}

/* Decides one delivery. -1: out of memory. */
static int decide(struct intake *in, size_t i, int64_t now_ms, struct err *e)
{
    struct inbox_delivery *d = &in->inbox.deliveries[i];
    struct store_item *item = &in->items[in->item_count];
    struct message *m = &item->message;
    *item = (struct store_item){.redelivered = d->redelivered};
    d->verdict = INBOX_OPEN;
    if (accept_message(&in->rules, &d->input, now_ms, &in->inbox.arena, m, e) != 0) {
        if (e->kind != ERR_REJECT)
            return -1;
        inbox_refuse(&in->inbox, d, e->text, METRIC_REJECTED_INVALID);
        err_clear(e);
        return 0;
    }
    if (m->counted_from_ms != 0) /* it waits since it was read; in whole ms, and not a part of one too much */
        m->counted_from_ms += clock_monotonic_ms() - d->read_ms - 1;
    look_for_misspelt(in, m, now_ms);
    if (m->hold == HOLD_BROKER && rates_apply(&in->pipeline->rates, m, false))
        m->hold = HOLD_GATEWAY; /* so it can be cancelled until its slot */
    d->exchange = m->exchange;
    d->key = m->key;
    if (m->key.len && intake_deferred_has_key(in, m->exchange, m->key)) {
        d->verdict = INBOX_LATER; /* behind the one that waits for the same key: their order counts */
        return 0;
    }
    m->id = message_id_new(m->due_ms);
    item->message_id = message_id_of(d->input.properties);
    in->item_delivery[in->item_count++] = i;
    return 0;
}

static struct store_options store_options(struct intake *in)
{
    return (struct store_options){.key_memory_ms = in->runtime->config->keys.key_memory_ms,
                                  .session = &in->session,
                                  .locks = &in->locks,
                                  .handover = intake_offer(in)};
}

/* For struct commit_check; ctx is the intake. */
static struct pg *connect_database(void *ctx, struct err *e)
{
    struct intake *in = ctx;
    return inbox_open_database(&in->inbox, e) == 0 ? in->inbox.pg : NULL;
}

static void close_database(void *ctx)
{
    struct intake *in = ctx;
    pg_close(in->inbox.pg);
    in->inbox.pg = NULL;
}

static bool nap(void *ctx, int64_t ms)
{
    struct intake *in = ctx;
    if (clock_monotonic_ms() > in->give_up_ms || runtime_stopping(in->runtime, STOP_INTAKE))
        return false;
    notifier_wait(&in->inbox.notifier, -1, ms * 1000000);
    return true;
}

/* Stores the items, through a restart of the database if need be. */
static int store_patiently(struct intake *in, struct err *e)
{
    const struct store_options o = store_options(in);
    struct commit_check check = {.connect = connect_database,
                                 .close = close_database,
                                 .nap = nap,
                                 .ctx = in,
                                 .busy_ms = PATIENCE_MS,
                                 .busy_pause_ms = PAUSE_MS,
                                 .away_ms = PATIENCE_MS,
                                 .unclear_ms = PATIENCE_MS};
    in->give_up_ms = clock_monotonic_ms() + PATIENCE_MS;
    int rc = commit_check_store(&check, &o, in->items, in->item_count, e);
    if (rc == 0)
        intake_hand_over(in, in->items, in->item_count);
    else
        intake_offer_unclear(in);
    return rc;
}

/* Postgres refuses something in the batch: offers the items one by one and refuses the guilty. */
static int store_singly(struct intake *in, struct err *e)
{
    for (size_t i = 0; i < in->item_count; i++) {
        const struct store_options o = store_options(in);
        if (store_accept(in->inbox.pg, &o, &in->items[i], 1, e) == 0) {
            intake_hand_over(in, &in->items[i], 1);
            continue;
        }
        intake_offer_unclear(in);
        if (e->kind != ERR_REJECT)
            return -1;
        inbox_refuse(&in->inbox, &in->inbox.deliveries[in->item_delivery[i]], e->text,
                     METRIC_REJECTED_DATABASE);
        in->items[i].result = STORE_DUPLICATE; /* nothing more to do with the item itself */
        err_clear(e);
    }
    return 0;
}

static void tell_stored(struct intake *in, int64_t now_ms)
{
    if (store_begun_ms(in->inbox.pg) > now_ms)
        now_ms = store_begun_ms(in->inbox.pg);
    runtime_ring_claimer(in->runtime, in->items, in->item_count, now_ms);
    if (in->runtime->transport && intake_leaves_to_feeder(in))
        notifier_notify(&in->runtime->handover_feeder_notifier);
}

static void give_verdicts(struct intake *in)
{
    for (size_t i = 0; i < in->item_count; i++) {
        const struct store_item *item = &in->items[i];
        struct inbox_delivery *d = &in->inbox.deliveries[in->item_delivery[i]];
        if (item->result == STORE_CONFLICT) {
            char text[400], key[300];
            snprintf(text, sizeof text,
                     "x-postdate-key: '%s' names a message that is still to be delivered, or was lately",
                     bytes_printable(item->message.key, key, sizeof key));
            inbox_refuse(&in->inbox, d, text, METRIC_REJECTED_CONFLICT);
        } else if (item->result == STORE_WAITS) {
            d->verdict = INBOX_LATER;
        } else if (d->verdict == INBOX_OPEN) {
            bool stored = item->result == STORE_ACCEPTED || item->result == STORE_REPLACED;
            metrics_add(&in->runtime->metrics,
                        stored                       ? METRIC_INTAKE_ACCEPTED
                        : item->result == STORE_KEPT ? METRIC_INTAKE_KEPT
                                                     : METRIC_INTAKE_DUPLICATE,
                        1);
            d->verdict = INBOX_DONE;
        }
    }
}

/* About now: delays are counted again when the batch is stored (store_accept). Stamps are compared with it,
 * so there it is asked for. */
static int current_ms(struct intake *in, int64_t *out_ms, struct err *e)
{
    int64_t us = 0;
    if (in->stamps == STAMP_NONE)
        return inbox_now_ms(&in->inbox, out_ms, e);
    int rc = store_clock(in->inbox.pg, &us, e);
    *out_ms = us / 1000;
    return rc;
}

int intake_store(struct intake *in, struct err *e)
{
    int64_t now_ms;
    if (current_ms(in, &now_ms, e) != 0)
        return -1;
    intake_weigh_stamps(in, now_ms);
    in->rules.hold = startup_hold_policy(in->runtime);
    in->item_count = 0;
    for (size_t i = 0; i < in->inbox.count; i++)
        if (in->inbox.deliveries[i].verdict != INBOX_REFUSED && decide(in, i, now_ms, e) != 0)
            return -1;
    if (in->item_count == 0)
        return 0;
    int rc = store_patiently(in, e);
    if (rc != 0 && e->kind == ERR_REJECT) {
        err_clear(e);
        rc = store_singly(in, e);
    }
    if (rc != 0)
        return -1;
    tell_stored(in, now_ms);
    give_verdicts(in);
    return 0;
}
