#include "gateway/relay/relay_adopt.h"

#include "sql/pipeline/history.h"
#include "sql/pipeline/relay.h"

#include <inttypes.h>

/* One by one, where PostgreSQL refuses something of them: that one is left to the log. */
static int64_t store_singly(struct claim_loop *l, const struct message *const *messages, size_t count,
                            struct err *e)
{
    int64_t stored = 0;
    for (size_t i = 0; i < count; i++) {
        char id[MESSAGE_ID_TEXT_SIZE];
        err_clear(e);
        int64_t one = history_store(l->pg, &messages[i], 1, l->runtime->config->handover.grace_ms, e);
        if (one < 0 && (pg_is_broken(l->pg) || err_is_transient(e)))
            return -1;
        if (one < 0)
            log_warning(
                "message %s, which RabbitMQ held and the database does not know, cannot be stored: %s",
                message_id_format(messages[i]->id, id), e->text);
        stored += one > 0 ? one : 0;
    }
    err_clear(e);
    return stored;
}

static int store(struct relay_adopting *a, struct claim_loop *l, const struct message *const *messages,
                 size_t count, struct err *e)
{
    char id[MESSAGE_ID_TEXT_SIZE];
    int64_t stored = history_store(l->pg, messages, count, l->runtime->config->handover.grace_ms, e);
    if (stored < 0 && !pg_is_broken(l->pg) && !err_is_transient(e))
        stored = store_singly(l, messages, count, e);
    if (stored <= 0)
        return stored < 0 ? -1 : 0;
    metrics_add(&l->runtime->metrics, METRIC_STORED_AGAIN, (uint64_t)stored);
    if (log_quota_take(&a->quota, (size_t)stored, message_id_format(messages[0]->id, id), "stored again"))
        log_info("%" PRId64
                 " message%s that RabbitMQ held and the database had forgotten %s stored again; the "
                 "first: %s",
                 stored, stored == 1 ? "" : "s", stored == 1 ? "is" : "are", id);
    return 0;
}

int relay_adopt(struct relay_adopting *a, struct claim_loop *l, const struct relay_question *questions,
                size_t count, bool *unknown, struct err *e)
{
    struct message_id ids[RELAY_IDS_MAX];
    const struct message *lost[RELAY_IDS_MAX];
    bool known[RELAY_IDS_MAX];
    size_t of[RELAY_IDS_MAX], n = 0, lost_count = 0;
    for (size_t i = 0; i < count; i++) {
        unknown[i] = false;
        if (!pipeline_is_doubtful(l->pipeline, message_id_due_ms(questions[i].id)))
            continue;
        of[n] = i;
        ids[n++] = questions[i].id;
    }
    if (n == 0)
        return 0;
    if (history_find_known(l->pg, ids, n, known, e) != 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (!known[i] && questions[of[i]].kept)
            lost[lost_count++] = &questions[of[i]].kept->message;
        unknown[of[i]] = !known[i] && !questions[of[i]].kept;
    }
    return lost_count > 0 ? store(a, l, lost, lost_count, e) : 0;
}
