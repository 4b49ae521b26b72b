/* GET /v1/stats. */
#include "core/base/timestamp.h"
#include "gateway/api/api_internal.h"
#include "gateway/api/executor_internal.h"
#include "gateway/runtime/locks.h"

#include <inttypes.h>

static void print_time(struct buf *out, const char *name, int64_t ms)
{
    char text[40];
    if (ms < 0)
        buf_printf(out, "\"%s\":null", name);
    else
        buf_printf(out, "\"%s\":\"%s\"", name, timestamp_format(ms, text, sizeof text));
}

static void print_backlog(struct executor *d, struct buf *out)
{
    struct executor_figures f;
    if (!executor_figures(d, &f)) {
        buf_put_str(out, "\"messages\":null,\"next_due_at\":null,\"overdue\":null,\"retrying\":null,");
        return;
    }
    buf_put_str(out, "\"messages\":{");
    const struct status_report *s = &f.messages;
    bool capped = false;
    for (int i = 0; i < MESSAGE_STATE_COUNT; i++) {
        buf_printf(out, "%s\"%s\":%" PRId64, i > 0 ? "," : "", message_state_name((enum message_state)i),
                   s->count[i]);
        capped = capped || s->capped[i];
    }
    buf_printf(out, "},\"counts_are_minimum\":%s,\"counted_only_in_part\":[", capped ? "true" : "false");
    const char *comma = "";
    for (int i = 0; i < MESSAGE_STATE_COUNT; i++)
        if (s->capped[i]) {
            buf_printf(out, "%s\"%s\"", comma, message_state_name((enum message_state)i));
            comma = ",";
        }
    buf_printf(out, "],\"counted_ms_ago\":%" PRId64 ",", clock_monotonic_ms() - f.counted_ms);
    print_time(out, "next_due_at", s->next_due_ms);
    buf_printf(out, ",\"overdue\":{\"count\":%" PRId64 ",", s->overdue);
    print_time(out, "oldest", s->oldest_overdue_ms);
    buf_printf(out, "},\"retrying\":%" PRId64 ",\"gateways\":%d,", s->retrying, status_alive(s));
}

static void print_lateness(struct runtime *rt, struct buf *out, bool shown)
{
    static const double parts[] = {0.5, 0.9, 0.99};
    static const char *const names[] = {"p50", "p90", "p99"};
    buf_put_str(out, "\"lateness_ms\":{");
    for (int i = 0; i < 3; i++) {
        double s = shown ? metrics_lateness_quantile(&rt->metrics, parts[i]) : -1;
        if (s < 0)
            buf_printf(out, "%s\"%s\":null", i > 0 ? "," : "", names[i]);
        else
            buf_printf(out, "%s\"%s\":%.3f", i > 0 ? "," : "", names[i], s * 1000);
    }
    buf_put_str(out, "},");
}

static bool is_away(struct server_status *w)
{
    pthread_mutex_lock(&w->lock);
    bool away = w->away;
    pthread_mutex_unlock(&w->lock);
    return away;
}

void stats_answer(struct executor *d, struct api_request *r)
{
    struct runtime *rt = d->runtime;
    struct buf *out = &r->answer.body;
    int64_t handed = atomic_load(&rt->metrics.handed);
    buf_reset(out);
    buf_put_str(out, "{");
    /* Counts and lateness are of all exchanges, so only for who may see them all. */
    bool all = api_scope_is_all(r->scope);
    if (all)
        print_backlog(d, out);
    print_lateness(rt, out, all);
    locks_print(rt, out); /* days of due times, no content: seen with a token, too */
    buf_put_str(out, ",");
    buf_printf(out,
               "\"transport\":\"%s\",\"window\":{\"length_ms\":%" PRId64 ",\"max_messages\":%" PRId64 ",",
               runtime_transport_name(rt), rt->config->handover.window_ms, rt->config->handover.max_messages);
    if (handed >= 0 && all)
        buf_printf(out, "\"messages\":%" PRId64 "},", handed);
    else
        buf_put_str(out, "\"messages\":null},");
    bool up = !is_away(&rt->rabbitmq) && atomic_load(&rt->publishing);
    const char *broker = atomic_load(&rt->metrics.broker_blocked) ? "blocked" : up ? "up" : "away";
    if (all) /* whose they are is not known: a tenant can do nothing about another one's */
        buf_printf(out, "\"stalled\":%d,\"refusing\":%d,", atomic_load(&rt->metrics.stalled),
                   atomic_load(&rt->metrics.refusing));
    buf_printf(out, "\"broker\":\"%s\",\"database\":\"%s\"}\n", broker,
               executor_why_not_ready(d) == NULL ? "up" : "away");
    r->answer.status = 200;
    if (out->failed)
        api_fail(&r->answer, API_INTERNAL, "out of memory");
}
