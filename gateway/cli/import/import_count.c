/* What was read, stored, refused and left, by exchange. */
#include "core/base/duration.h"
#include "core/base/timestamp.h"
#include "gateway/cli/import/import_internal.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define HOUR_MS INT64_C(3600000)
#define NAME_SHOWN 80

struct import_count *import_count_of(struct import_run *run, struct bytes exchange)
{
    for (size_t i = 0; i < run->count_count; i++)
        if (bytes_equal(run->counts[i].from, exchange))
            return &run->counts[i];
    if (run->count_count == IMPORT_EXCHANGES_MAX || exchange.len > MESSAGE_NAME_MAX)
        return NULL;
    const struct import_mapping *mapping = import_mapping_of(run->order, exchange);
    struct import_count *c = &run->counts[run->count_count++];
    *c = (struct import_count){.mapped = mapping != NULL};
    if (exchange.len > 0)
        memcpy(c->name, exchange.data, exchange.len);
    c->from = bytes_of(c->name, exchange.len);
    if (mapping != NULL)
        c->to = mapping->to;
    return c;
}

void import_count_refusal(struct import_run *run, struct bytes exchange, const char *why)
{
    char text[sizeof run->reasons[0].text], name[NAME_SHOWN];
    struct import_count *c = import_count_of(run, exchange);
    if (c != NULL)
        c->refused++;
    snprintf(text, sizeof text, "%s: %s", bytes_printable(exchange, name, sizeof name), why);
    for (size_t i = 0; i < run->reason_count; i++)
        if (strcmp(run->reasons[i].text, text) == 0) {
            run->reasons[i].count++;
            return;
        }
    if (run->reason_count == IMPORT_REASONS_MAX) {
        run->other_reasons++;
        return;
    }
    struct import_reason *r = &run->reasons[run->reason_count++];
    memcpy(r->text, text, sizeof r->text);
    r->count = 1;
}

int import_count_survey(struct import_run *run, const struct import_answer *a, struct err *e)
{
    run->total = 0;
    for (size_t i = 0; i < a->survey_count; i++) {
        const struct import_survey *s = &a->surveys[i];
        struct import_count *c = import_count_of(run, s->exchange);
        if (c == NULL)
            return err_set(e, ERR_REJECT,
                           "messages of more than %d exchanges wait in vhost \"%s\" (allowed: %d)",
                           IMPORT_EXCHANGES_MAX, run->vhost, IMPORT_EXCHANGES_MAX);
        c->waiting += s->count;
        c->soon += s->soon ? s->count : 0;
        run->total += s->soon ? 0 : s->count;
    }
    return 0;
}

static int compare_surveys(const void *va, const void *vb)
{
    const struct import_survey *a = va, *b = vb;
    if (a->hour != b->hour)
        return a->hour < b->hour ? -1 : 1;
    size_t least = a->exchange.len < b->exchange.len ? a->exchange.len : b->exchange.len;
    int d = least > 0 ? memcmp(a->exchange.data, b->exchange.data, least) : 0;
    return d != 0 ? d : (a->exchange.len > b->exchange.len) - (a->exchange.len < b->exchange.len);
}

void import_count_print_hours(const struct import_run *run, const struct import_answer *a)
{
    char when[40], name[NAME_SHOWN];
    if (a->survey_count > 0)
        qsort(a->surveys, a->survey_count, sizeof *a->surveys, compare_surveys);
    if (run->total > 0)
        printf("\n%-18s %10s  %s\n", "HOUR (UTC)", "MESSAGES", "EXCHANGE");
    for (size_t i = 0; i < a->survey_count && cli_output_error() == 0; i++) {
        const struct import_survey *s = &a->surveys[i];
        if (s->soon)
            continue;
        timestamp_format(s->hour * HOUR_MS, when, sizeof when);
        printf("%.13s:00      %10" PRId64 "  %s\n", when, s->count,
               bytes_printable(s->exchange, name, sizeof name));
    }
}

void import_count_print(const struct import_run *run)
{
    char from[NAME_SHOWN], to[NAME_SHOWN];
    int64_t soon = 0;
    printf("%-24s %-24s %9s %9s %9s %9s\n", "EXCHANGE", "TO", "READ", run->order->dry_run ? "GOOD" : "STORED",
           "REFUSED", "LEFT");
    for (size_t i = 0; i < run->count_count; i++) {
        const struct import_count *c = &run->counts[i];
        soon += c->soon;
        printf("%-24s %-24s %9" PRId64 " %9" PRId64 " %9" PRId64 " %9" PRId64 "\n",
               bytes_printable(c->from, from, sizeof from),
               c->mapped ? bytes_printable(c->to, to, sizeof to) : "(no --exchange)", c->read, c->stored,
               c->refused, c->left);
    }
    if (soon > 0)
        printf("%" PRId64 " more were due within %s, and stay with the plugin\n", soon,
               duration_format(run->order->margin_ms, from, sizeof from));
}

void import_count_print_reasons(const struct import_run *run)
{
    for (size_t i = 0; i < run->reason_count; i++)
        cli_say("not imported: %" PRId64 " of %s", run->reasons[i].count, run->reasons[i].text);
    if (run->other_reasons > 0)
        cli_say("not imported: %" PRId64 " more, for other reasons", run->other_reasons);
}
