#include "gateway/http/http_internal.h"

#include <string.h>

enum {
    LIVEZ,
    READYZ,
    METRICS,
    OPENAPI,
    MESSAGES,
    MESSAGE,
    CANCEL,
    RESCHEDULE,
    RETRY,
    FAIL,
    MESSAGE_FAIL,
    MESSAGE_RETRY,
    STATS,
    DEAD,
    DEAD_LETTER,
    DEAD_GROUPS,
    DEAD_REQUEUE,
    DEAD_DROP,
    POLICIES,
    POLICY,
    POLICY_MATCH,
    CONSOLE,
    RECUR_ALL,
    RECUR,
    RECUR_PAUSE,
    RECUR_RESUME,
    RECUR_RUN,
    RECUR_HISTORY,
    RECUR_PREVIEW,
    WHOAMI,
    SLO,
    FORECAST,
    OVERVIEW,
    OTHER = HTTP_ROUTE_OTHER
};

const char *const http_route_names[METRICS_ROUTES] = {
    [LIVEZ] = "/livez",
    [READYZ] = "/readyz",
    [METRICS] = "/metrics",
    [OPENAPI] = "/openapi.json",
    [MESSAGES] = "/v1/messages",
    [MESSAGE] = "/v1/messages/{id}",
    [CANCEL] = "/v1/messages:cancel",
    [RESCHEDULE] = "/v1/messages:reschedule",
    [RETRY] = "/v1/messages:retry",
    [FAIL] = "/v1/messages:fail",
    [MESSAGE_FAIL] = "/v1/messages/{id}:fail",
    [MESSAGE_RETRY] = "/v1/messages/{id}:retry",
    [STATS] = "/v1/stats",
    [DEAD] = "/v1/dead",
    [DEAD_LETTER] = "/v1/dead/{id}",
    [DEAD_GROUPS] = "/v1/dead:groups",
    [DEAD_REQUEUE] = "/v1/dead:requeue",
    [DEAD_DROP] = "/v1/dead:drop",
    [POLICIES] = "/v1/retry-policies",
    [POLICY] = "/v1/retry-policies/{pattern}",
    [POLICY_MATCH] = "/v1/retry-policies:match",
    [CONSOLE] = "/",
    [RECUR_ALL] = "/v1/recurring",
    [RECUR] = "/v1/recurring/{name}",
    [RECUR_PAUSE] = "/v1/recurring/{name}:pause",
    [RECUR_RESUME] = "/v1/recurring/{name}:resume",
    [RECUR_RUN] = "/v1/recurring/{name}:run",
    [RECUR_HISTORY] = "/v1/recurring/{name}:history",
    [RECUR_PREVIEW] = "/v1/recurring:preview",
    [WHOAMI] = "/v1/whoami",
    [SLO] = "/v1/slo",
    [FORECAST] = "/v1/forecast",
    [OVERVIEW] = "/v1/overview",
    [OTHER] = "other",
};

static const struct http_route routes[] = {
    {"GET", "/", HTTP_CONSOLE, 0, CONSOLE},
    {"GET", "/console/{path}", HTTP_CONSOLE, 0, CONSOLE},
    {"GET", "/livez", HTTP_LIVE, 0, LIVEZ},
    {"GET", "/readyz", HTTP_READY, 0, READYZ},
    {"GET", "/metrics", HTTP_METRICS, 0, METRICS},
    {"GET", "/openapi.json", HTTP_OPENAPI, 0, OPENAPI},
    {"POST", "/v1/messages", HTTP_API, API_SCHEDULE, MESSAGES},
    {"GET", "/v1/messages", HTTP_API, API_LIST, MESSAGES},
    {"DELETE", "/v1/messages", HTTP_API, API_CANCEL, MESSAGES},
    {"POST", "/v1/messages/{id}:fail", HTTP_API, API_FAIL, MESSAGE_FAIL},
    {"POST", "/v1/messages/{id}:retry", HTTP_API, API_RETRY, MESSAGE_RETRY},
    {"GET", "/v1/messages/{id}", HTTP_API, API_SHOW, MESSAGE},
    {"DELETE", "/v1/messages/{id}", HTTP_API, API_CANCEL, MESSAGE},
    {"PATCH", "/v1/messages/{id}", HTTP_API, API_RESCHEDULE, MESSAGE},
    {"POST", "/v1/messages:cancel", HTTP_API, API_BULK_CANCEL, CANCEL},
    {"POST", "/v1/messages:reschedule", HTTP_API, API_BULK_RESCHEDULE, RESCHEDULE},
    {"POST", "/v1/messages:retry", HTTP_API, API_BULK_RETRY, RETRY},
    {"POST", "/v1/messages:fail", HTTP_API, API_BULK_FAIL, FAIL},
    {"GET", "/v1/stats", HTTP_API, API_STATS, STATS},
    {"GET", "/v1/dead", HTTP_API, API_DEAD_LIST, DEAD},
    {"GET", "/v1/dead:groups", HTTP_API, API_DEAD_GROUPS, DEAD_GROUPS},
    {"POST", "/v1/dead:requeue", HTTP_API, API_DEAD_REQUEUE, DEAD_REQUEUE},
    {"POST", "/v1/dead:drop", HTTP_API, API_DEAD_DROP, DEAD_DROP},
    {"GET", "/v1/dead/{id}", HTTP_API, API_DEAD_SHOW, DEAD_LETTER},
    {"GET", "/v1/retry-policies", HTTP_API, API_POLICY_LIST, POLICIES},
    {"GET", "/v1/retry-policies:match", HTTP_API, API_POLICY_MATCH, POLICY_MATCH},
    {"GET", "/v1/retry-policies/{pattern}", HTTP_API, API_POLICY_SHOW, POLICY},
    {"PUT", "/v1/retry-policies/{pattern}", HTTP_API, API_POLICY_SET, POLICY},
    {"DELETE", "/v1/retry-policies/{pattern}", HTTP_API, API_POLICY_REMOVE, POLICY},
    {"GET", "/v1/recurring", HTTP_API, API_RECUR_LIST, RECUR_ALL},
    {"GET", "/v1/recurring:preview", HTTP_API, API_RECUR_PREVIEW, RECUR_PREVIEW},
    {"GET", "/v1/recurring/{name}", HTTP_API, API_RECUR_SHOW, RECUR},
    {"PUT", "/v1/recurring/{name}", HTTP_API, API_RECUR_SET, RECUR},
    {"DELETE", "/v1/recurring/{name}", HTTP_API, API_RECUR_REMOVE, RECUR},
    {"POST", "/v1/recurring/{name}:pause", HTTP_API, API_RECUR_PAUSE, RECUR_PAUSE},
    {"POST", "/v1/recurring/{name}:resume", HTTP_API, API_RECUR_RESUME, RECUR_RESUME},
    {"POST", "/v1/recurring/{name}:run", HTTP_API, API_RECUR_RUN, RECUR_RUN},
    {"GET", "/v1/recurring/{name}:history", HTTP_API, API_RECUR_HISTORY, RECUR_HISTORY},
    {"GET", "/v1/whoami", HTTP_API, API_WHOAMI, WHOAMI},
    {"GET", "/v1/slo", HTTP_API, API_SLO, SLO},
    {"GET", "/v1/forecast", HTTP_API, API_FORECAST, FORECAST},
    {"GET", "/v1/overview", HTTP_API, API_OVERVIEW, OVERVIEW},
};

/* By number: what an Allow header says. */
static const char *const allows[] = {
    [LIVEZ] = "GET, HEAD",
    [READYZ] = "GET, HEAD",
    [METRICS] = "GET, HEAD",
    [OPENAPI] = "GET, HEAD",
    [STATS] = "GET, HEAD",
    [MESSAGES] = "GET, HEAD, POST, DELETE",
    [MESSAGE] = "GET, HEAD, DELETE, PATCH",
    [CANCEL] = "POST",
    [RESCHEDULE] = "POST",
    [RETRY] = "POST",
    [FAIL] = "POST",
    [MESSAGE_FAIL] = "POST",
    [MESSAGE_RETRY] = "POST",
    [DEAD] = "GET, HEAD",
    [DEAD_LETTER] = "GET, HEAD",
    [DEAD_GROUPS] = "GET, HEAD",
    [DEAD_REQUEUE] = "POST",
    [DEAD_DROP] = "POST",
    [POLICIES] = "GET, HEAD",
    [POLICY] = "GET, HEAD, PUT, DELETE",
    [POLICY_MATCH] = "GET, HEAD",
    [CONSOLE] = "GET, HEAD",
    [RECUR_ALL] = "GET, HEAD",
    [RECUR] = "GET, HEAD, PUT, DELETE",
    [RECUR_PAUSE] = "POST",
    [RECUR_RESUME] = "POST",
    [RECUR_RUN] = "POST",
    [RECUR_HISTORY] = "GET, HEAD",
    [RECUR_PREVIEW] = "GET, HEAD",
    [WHOAMI] = "GET, HEAD",
    [SLO] = "GET, HEAD",
    [FORECAST] = "GET, HEAD",
    [OVERVIEW] = "GET, HEAD",
};

static bool path_matches(const struct http_route *route, const char *path, struct bytes *id)
{
    const char *hole = strchr(route->path, '{');
    if (hole == NULL)
        return strcmp(route->path, path) == 0;
    size_t fixed = (size_t)(hole - route->path);
    if (strncmp(route->path, path, fixed) != 0 || path[fixed] == '\0')
        return false;
    if (strcmp(hole, "{path}") == 0) {
        *id = bytes_of_str(path + fixed);
        return true;
    }
    if (strchr(path + fixed, '/') != NULL)
        return false;
    /* What comes after an id or name, ":fail", is no part of one; a pattern may have colons of its own. */
    bool is_id = strncmp(hole, "{pattern}", 9) != 0;
    const char *after = strchr(hole, '}') + 1, *end = is_id ? strchr(path + fixed, ':') : NULL;
    if (strcmp(end != NULL ? end : "", after) != 0)
        return false;
    *id = bytes_of(path + fixed, end != NULL ? (size_t)(end - path) - fixed : strlen(path + fixed));
    return id->len > 0;
}

const struct http_route *http_route_find(const char *method, const char *path, struct bytes *id,
                                         const char **allow)
{
    const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
    *allow = NULL;
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        if (!path_matches(&routes[i], path, id))
            continue;
        if (strcmp(routes[i].method, wanted) == 0)
            return &routes[i];
        *allow = allows[routes[i].number];
    }
    return NULL;
}
