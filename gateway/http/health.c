/* What needs no token and no database: /livez, /readyz, /metrics, /openapi.json. */
#include "core/base/version.h"
#include "gateway/http/http_internal.h"
#include "gateway/runtime/locks.h"
#include "gateway/runtime/log.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void print_held(const struct status_held *h, struct buf *out)
{
    metrics_print_head(out, "postdate_recurring_held", "gauge",
                       "Schedules that send nothing: paused, or overlap (occurrences are left out while the "
                       "previous one is not done).");
    buf_printf(out,
               "postdate_recurring_held{by=\"pause\"} %" PRId64 "\n"
               "postdate_recurring_held{by=\"overlap\"} %" PRId64 "\n",
               h->paused, h->behind);
    metrics_print_gauge(out, "postdate_recurring_left_out",
                        "Occurrences left out so far because the previous one is not done.",
                        (double)h->left_out);
    metrics_print_gauge(out, "postdate_rates_paused", "Rates that are paused.", (double)h->rates);
    metrics_print_gauge(out, "postdate_rates_paused_messages",
                        "Messages that wait for a paused rate, counted up to 10,000 for each.",
                        (double)h->waiting);
}

static void print_figures(struct http *h, struct buf *out)
{
    struct executor_figures f;
    if (!executor_figures(h->executor, &f))
        return;
    const struct status_report *s = &f.messages;
    double oldest_s = s->oldest_overdue_ms < 0 ? 0 : (double)(s->now_ms - s->oldest_overdue_ms) / 1000;
    /* By state, and by when they are due. */
    metrics_print_head(out, "postdate_messages", "gauge",
                       "Messages by state, as last counted, up to a million each.");
    for (int i = 0; i < MESSAGE_STATE_COUNT; i++)
        buf_printf(out, "postdate_messages{state=\"%s\"} %" PRId64 "\n",
                   message_state_name((enum message_state)i), f.messages.count[i]);
    metrics_print_head(out, "postdate_due_messages", "gauge",
                       "Messages that will be due within so many seconds.");
    for (int i = 0; i < FORECAST_WITHIN; i++)
        buf_printf(out, "postdate_due_messages{within_seconds=\"%" PRId64 "\"} %" PRId64 "\n",
                   forecast_within_s[i], f.due[i]);
    metrics_print_gauge(out, "postdate_overdue_messages",
                        "Messages whose next attempt is more than a second overdue.", (double)s->overdue);
    metrics_print_gauge(
        out, "postdate_messages_retrying",
        "Messages that were unroutable or may have been delivered, and wait for another attempt.",
        (double)s->retrying);
    metrics_print_gauge(out, "postdate_oldest_overdue_seconds", "How late the oldest overdue message is.",
                        oldest_s);
    metrics_print_gauge(out, "postdate_backlog_age_seconds", "How long ago the backlog was counted.",
                        (double)(clock_monotonic_ms() - f.counted_ms) / 1000);
    metrics_print_gauge(out, "postdate_slo_late_seconds",
                        "The objective: a delivery that is later than this is late.",
                        (double)f.slo.objective.late_ms / 1000);
    metrics_print_gauge(out, "postdate_slo_target_ratio",
                        "The objective: the fraction of deliveries that must not be late.",
                        f.slo.objective.target);
    metrics_print_gauge(
        out, "postdate_slo_window_ratio",
        "Fraction of deliveries that were not late, of all gateways, in the objective's window.",
        slo_share(&f.slo.in[SLO_ALL]));
    metrics_print_gauge(out, "postdate_slo_budget_left_ratio",
                        "Unused fraction of the window's error budget; below 0 when it is overspent.",
                        slo_budget_left(&f.slo));
    metrics_print_gauge(
        out, "postdate_database_went_back_timestamp_seconds",
        "Last time the database was found to have gone back, in seconds since 1970; 0: never.",
        s->back.found_ms < 0 ? 0 : (double)s->back.found_ms / 1000);
    metrics_print_gauge(out, "postdate_database_forgotten_seconds",
                        "Seconds of history that the database had lost then.",
                        s->back.found_ms < 0 ? 0 : (double)(s->back.to_ms - s->back.from_ms) / 1000);
    metrics_print_gauge(
        out, "postdate_database_forgotten_due",
        "Messages due in those seconds, counted up to 100,000: those delivered then may be delivered again.",
        s->back.found_ms < 0 || s->back.due < 0 ? 0 : (double)s->back.due);
    metrics_print_gauge(out, "postdate_partitions_ahead",
                        "Days from today on that have a partition, without a gap.", (double)f.room.days);
    metrics_print_gauge(out, "postdate_database_bytes", "Size of the database.", (double)f.room.bytes);
    print_held(&s->held, out);
    metrics_print_gauge(out, "postdate_dead_letters_kept",
                        "Dead letters that are kept, counted up to 100,000.", (double)f.room.dead);
}

static void print_rest(struct http *h, struct buf *out)
{
    struct runtime *rt = h->runtime;
    int64_t handed = atomic_load(&rt->metrics.handed);
    struct locked_days locked;
    metrics_print_gauge(out, "postdate_database_up",
                        "1 while the database answers, accepts writes, and has the right schema.",
                        executor_why_not_ready(h->executor) == NULL);
    locks_shown(rt, &locked);
    metrics_print_gauge(out, "postdate_locked_partitions",
                        "Days whose messages wait because another session has locked their partition.",
                        locked.all ? 1 : locked.count);
    metrics_print_gauge(
        out, "postdate_notify_queue_ratio",
        "How full PostgreSQL's queue of NOTIFY is, 0 to 1; above 0.5, gateways are not notified.",
        (double)atomic_load(&rt->metrics.notify_permille) / 1000);
    metrics_print_gauge(out, "postdate_broker_up", "1 while the gateway may publish to RabbitMQ.",
                        atomic_load(&rt->publishing));
    metrics_print_gauge(out, "postdate_broker_connections_reopening",
                        "1 while a connection to RabbitMQ is lost again and again, soon after it was opened.",
                        reopened_any(rt));
    metrics_print_gauge(out, "postdate_held_messages", "Claimed messages in this gateway's memory.",
                        (double)atomic_load(rt->metrics.held_messages));
    metrics_print_gauge(out, "postdate_held_bytes", "Memory used by claimed messages, in bytes.",
                        (double)atomic_load(rt->metrics.held_bytes));
    metrics_print_head(out, "postdate_log_lines_lost_total", "counter",
                       "Lines of the log that could not be written.");
    buf_printf(out, "postdate_log_lines_lost_total %lu\n", log_lost());
    metrics_print_gauge(out, "postdate_http_body_bytes", "Memory used by request bodies, in bytes.",
                        (double)h->body_bytes);
    if (rt->transport != NULL)
        metrics_print_gauge(
            out, "postdate_policy_in_the_way",
            "1 while a RabbitMQ policy changes how it holds messages, so that nothing is handed over.",
            atomic_load(&rt->metrics.policy_in_the_way));
    if (handed >= 0 && rt->transport != NULL) {
        metrics_print_gauge(out, "postdate_window_messages", "Messages that RabbitMQ holds, as last counted.",
                            (double)handed);
        metrics_print_gauge(out, "postdate_window_messages_max", "Messages that RabbitMQ may hold at most.",
                            (double)rt->config->handover.max_messages);
    }
}

/* --- The process_* metrics, with the names of Prometheus' client libraries, which its dashboards and alerts
 * use. */

/* proc(5), /proc/self/statm: all and resident, in pages. */
static bool read_memory(double *all, double *resident)
{
    unsigned long long pages = 0, in_memory = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    int found = f != NULL ? fscanf(f, "%llu %llu", &pages, &in_memory) : 0;
    if (f != NULL)
        fclose(f);
    double page = (double)sysconf(_SC_PAGESIZE);
    *all = (double)pages * page;
    *resident = (double)in_memory * page;
    return found == 2;
}

static int count_entries(const char *folder)
{
    DIR *d = opendir(folder);
    int n = -2; /* . and .. */
    while (d != NULL && readdir(d) != NULL)
        n++;
    if (d != NULL)
        closedir(d);
    return n;
}

static void print_process(double started_s, struct buf *out)
{
    struct rusage used;
    struct rlimit files;
    double all, resident;
    if (getrusage(RUSAGE_SELF, &used) == 0) {
        metrics_print_head(out, "process_cpu_seconds_total", "counter",
                           "User and system CPU time spent, in seconds.");
        buf_printf(out, "process_cpu_seconds_total %.17g\n",
                   (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                       (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6);
    }
    if (read_memory(&all, &resident)) {
        metrics_print_gauge(out, "process_resident_memory_bytes", "Resident memory, in bytes.", resident);
        metrics_print_gauge(out, "process_virtual_memory_bytes", "Virtual memory, in bytes.", all);
    }
    metrics_print_gauge(out, "process_open_fds", "Open file descriptors.",
                        count_entries("/proc/self/fd") - 1); /* the folder's own */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0)
        metrics_print_gauge(out, "process_max_fds", "File descriptors that may be open.",
                            (double)files.rlim_cur);
    metrics_print_gauge(out, "process_start_time_seconds", "When the process began, in seconds since 1970.",
                        started_s);
    metrics_print_gauge(out, "process_threads", "Threads of the process.", count_entries("/proc/self/task"));
}

/* --- What is asked. */

static void answer_live(struct http_request *r)
{
    buf_put_str(&r->api.answer.body, "{\"status\":\"alive\"}\n");
}

/* Ready also where days are locked: everything that is due on other days goes on. */
static void answer_ready(struct http_request *r)
{
    struct buf *out = &r->api.answer.body;
    const char *why_not = atomic_load(&r->http->draining) ? "the gateway is stopping"
                                                          : executor_why_not_ready(r->http->executor);
    if (why_not != NULL) {
        api_fail(&r->api.answer, API_NOT_READY, "%s", why_not);
        return;
    }
    buf_put_str(out, "{\"status\":\"ready\",");
    locks_print(r->http->runtime, out);
    buf_printf(out, ",\"broker_reopening\":%s}\n", reopened_any(r->http->runtime) ? "true" : "false");
}

static void answer_metrics(struct http_request *r)
{
    struct buf *out = &r->api.answer.body;
    struct http *h = r->http;
    r->content_type = "text/plain; version=0.0.4; charset=utf-8";
    metrics_print(&h->runtime->metrics, http_route_name, out);
    print_figures(h, out);
    print_rest(h, out);
    print_process(h->runtime->metrics.started_s, out);
    metrics_print_head(out, "postdate_build_info", "gauge", "The version.");
    buf_printf(out, "postdate_build_info{version=\"%s\"} 1\n", version_string);
}

static void answer_description(struct http_request *r)
{
    buf_put_bytes(&r->api.answer.body, buf_bytes(&r->http->description));
}

void http_own_answer(struct http_request *r)
{
    static const struct {
        const char *name;
        void (*answer)(struct http_request *r);
    } own[] = {{"console", http_console_answer},
               {"livez", answer_live},
               {"readyz", answer_ready},
               {"metrics", answer_metrics},
               {"openapi", answer_description}};
    struct api_answer *a = &r->api.answer;
    size_t i = 0;
    while (strcmp(own[i].name, r->api.op->name) != 0)
        i++;
    a->status = 200;
    if (i == 0 || api_admits(&r->api)) /* only the console's pages may have parameters */
        own[i].answer(r);
    if (a->body.failed)
        api_fail(a, API_INTERNAL, "out of memory");
}
