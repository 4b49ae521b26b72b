/* Checks the rights of callers, and writes the audit lines.
 *
 * Every request, of all interfaces, passes api_guard_admit before the executor gets it; over HTTP before its
 * body is read. Checks that depend on the body are made by the thread that executes it. */
#include "gateway/ops/api_guard.h"
#include "core/base/clock.h"
#include "gateway/ops/api_internal.h"
#include "gateway/ops/api_operation.h"
#include "gateway/runtime/log.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- A caller can cause any number of refusals: the log gets some lines per minute and caller, and then the
 * number of the others. */

#define LINES 10 /* of one caller, within */
#define WINDOW_MS 60000
#define CALLERS 64 /* that are known at a time; the others share the last place */

struct caller {
    char name[200]; /* as the line has it; "": free */
    int64_t since_ms;
    int lines;
    uint64_t unsaid;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards callers */
static struct caller callers[CALLERS];

/* When its minute is over. */
static void end_window(struct caller *c, int64_t now_ms, bool at_once)
{
    if (c->name[0] == '\0' || (!at_once && now_ms - c->since_ms < WINDOW_MS))
        return;
    if (c->unsaid > 0)
        log_audit("audit: by %s: %llu more refusals within a minute", c->name, (unsigned long long)c->unsaid);
    *c = (struct caller){0};
}

static struct caller *find_caller(const char *name, int64_t now_ms)
{
    struct caller *free_one = NULL;
    for (size_t i = 0; i < CALLERS - 1; i++) {
        end_window(&callers[i], now_ms, false);
        if (strcmp(callers[i].name, name) == 0)
            return &callers[i];
        if (callers[i].name[0] == '\0')
            free_one = &callers[i];
    }
    struct caller *c = free_one != NULL ? free_one : &callers[CALLERS - 1];
    end_window(c, now_ms, false);
    if (c->name[0] == '\0') {
        snprintf(c->name, sizeof c->name, "%s", free_one != NULL ? name : "others");
        c->since_ms = now_ms;
    }
    return c;
}

/* May there be one more line about a refusal of this caller? If not, it is counted. */
static bool api_audit_takes(const char *name)
{
    int64_t now_ms = clock_monotonic_ms();
    pthread_mutex_lock(&lock);
    struct caller *c = find_caller(name, now_ms);
    bool takes = c->lines < LINES;
    c->lines += takes;
    c->unsaid += !takes;
    pthread_mutex_unlock(&lock);
    return takes;
}

void api_audit_flush(bool at_once)
{
    int64_t now_ms = clock_monotonic_ms();
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < CALLERS; i++)
        end_window(&callers[i], now_ms, at_once);
    pthread_mutex_unlock(&lock);
}

/* --- Rights and audit lines. */

#define WHAT_SIZE 700

/* A body that is not an object is rejected by the operation; until then it is treated as a change. */
static bool is_dry_run(const struct api_request *r)
{
    struct api_answer ignored;
    api_answer_open(&ignored);
    json_t *root = api_parse_body(r->body, &ignored);
    bool dry = json_is_true(json_object_get(root, "dry_run"));
    json_decref(root);
    api_answer_close(&ignored);
    return dry;
}

static bool may_look_only(const struct api_request *r)
{
    return r->scope != NULL && r->scope->reads_only && r->op->effect != API_READS;
}

static int refuse_role(struct api_request *r)
{
    api_fail(
        &r->answer, API_ROLE_NOT_ALLOWED,
        "the token has the role read, which allows look-ups and dry runs only: %s needs the role operate",
        r->op->name);
    return -1;
}

int api_guard_admit(struct api_request *r)
{
    if (may_look_only(r) && r->op->threads != API_BULK_WORKER)
        return refuse_role(r);
    if (r->op->large || r->body.len <= API_SMALL_BODY)
        return 0;
    api_fail(&r->answer, API_TOO_LARGE, "the body is %zu bytes long: allowed are up to %zu", r->body.len,
             API_SMALL_BODY);
    return -1;
}

int api_guard_admit_body(struct api_request *r)
{
    return may_look_only(r) && !is_dry_run(r) ? refuse_role(r) : 0;
}

/* --- the audit line */

/* Filter and times of the body, without the content of a message or policy. */
static void describe_body(const struct api_request *r, struct buf *out)
{
    static const char *const shown[] = {"filter", "all",    "ids",      "shift_ms",
                                        "rate",   "due_at", "delay_ms", "delay"};
    struct api_answer ignored;
    if (r->op->large || r->body.len == 0 || r->body.len > API_SMALL_BODY)
        return;
    api_answer_open(&ignored);
    json_t *root = api_parse_body(r->body, &ignored);
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        const json_t *v = json_object_get(root, shown[i]);
        char *text = v != NULL ? json_dumps(v, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_ENCODE_ANY) : NULL;
        if (text != NULL)
            buf_printf(out, " %s=%.300s", shown[i], text);
        free(text);
    }
    json_decref(root);
    api_answer_close(&ignored);
}

static void describe_answer(const struct api_answer *a, struct buf *out)
{
    char id[MESSAGE_ID_TEXT_SIZE];
    if (a->status >= 400)
        buf_printf(out, ": %d %s", a->status, api_problem_type(a->problem) + strlen("urn:postdate:problem:"));
    else if (a->counted && a->matched > 0)
        buf_printf(out, ": %" PRId64 " matched, %" PRId64 " changed, the first %s", a->matched, a->changed,
                   message_id_format(a->id, id));
    else if (a->counted)
        buf_printf(out, ": 0 matched, 0 changed");
    else if (a->made == 1)
        buf_printf(out, ": made %s", message_id_format(a->id, id));
    else if (a->made > 1)
        buf_printf(out, ": made %d, the first %s", a->made, message_id_format(a->id, id));
    else
        buf_printf(out, ": %d", a->status);
}

/* Who it is, as its lines have it: a token, or, without one, an address without its port. */
static void describe_caller(const struct api_request *r, char *out, size_t size)
{
    char name[160];
    const char *from = r->from != NULL ? r->from : "nowhere", *port = strrchr(from, ':');
    if (r->scope != NULL)
        snprintf(out, size, "token \"%s\"", bytes_printable(bytes_of_str(r->scope->name), name, sizeof name));
    else
        snprintf(out, size, "any client (http.tokens is off) at %.*s",
                 port != NULL ? (int)(port - from) : 100, from);
}

void api_audit(const struct api_request *r)
{
    struct buf what;
    char caller[200];
    bool only_adds = r->op->threads == API_GROUP_COMMIT && !r->answer.replaces;
    if (!log_audits(only_adds ? LOG_AUDIT_ALL : LOG_AUDIT_CHANGES))
        return;
    describe_caller(r, caller, sizeof caller);
    if (r->answer.problem != API_OK && r->answer.status < 500 && !api_audit_takes(caller))
        return;
    buf_init(&what, WHAT_SIZE * 4);
    buf_put_str(&what, r->op->name);
    char shown[300];
    if (r->id.len > 0)
        buf_printf(&what, " %s", bytes_printable(r->id, shown, sizeof shown));
    for (size_t i = 0; i < r->params.count; i++) {
        buf_printf(&what, " %s=", bytes_printable(r->params.list[i].name, shown, sizeof shown));
        buf_printf(&what, "%s", bytes_printable(r->params.list[i].value, shown, sizeof shown));
    }
    describe_body(r, &what);
    describe_answer(&r->answer, &what);
    log_audit("audit: by %s from %s: %.*s", r->scope != NULL ? caller : "any client (http.tokens is off)",
              r->from != NULL ? r->from : "nowhere", what.len < WHAT_SIZE ? (int)what.len : WHAT_SIZE,
              (const char *)what.data);
    buf_free(&what);
}

bool api_is_change(const struct api_request *r, bool idle)
{
    switch (r->answer.problem) {
    case API_OK:
        return r->op->effect != API_READS && r->answer.status < 300 && !idle;
    case API_UNKNOWN_OUTCOME:
    case API_INTERNAL:
    case API_NOT_READY:
        return r->op->effect != API_READS && !idle;
    case API_TOO_LATE:
        return r->answer.changed > 0; /* in another cell */
    default:
        return false;
    }
}
