#include "gateway/http/http_internal.h"

#include <stdio.h>
#include <string.h>

static const struct http_route routes[] = {
    {"GET", "/", HTTP_CONSOLE, 0},
    {"GET", "/console/{path}", HTTP_CONSOLE, 0},
    {"GET", "/livez", HTTP_LIVE, 0},
    {"GET", "/readyz", HTTP_READY, 0},
    {"GET", "/metrics", HTTP_METRICS, 0},
    {"GET", "/openapi.json", HTTP_OPENAPI, 0},
    {"POST", "/v1/messages", HTTP_API, API_SCHEDULE},
    {"GET", "/v1/messages", HTTP_API, API_LIST},
    {"DELETE", "/v1/messages", HTTP_API, API_CANCEL},
    {"POST", "/v1/messages/{id}:fail", HTTP_API, API_FAIL},
    {"POST", "/v1/messages/{id}:retry", HTTP_API, API_RETRY},
    {"GET", "/v1/messages/{id}", HTTP_API, API_SHOW},
    {"DELETE", "/v1/messages/{id}", HTTP_API, API_CANCEL},
    {"PATCH", "/v1/messages/{id}", HTTP_API, API_RESCHEDULE},
    {"POST", "/v1/messages:cancel", HTTP_API, API_BULK_CANCEL},
    {"POST", "/v1/messages:reschedule", HTTP_API, API_BULK_RESCHEDULE},
    {"POST", "/v1/messages:retry", HTTP_API, API_BULK_RETRY},
    {"POST", "/v1/messages:fail", HTTP_API, API_BULK_FAIL},
    {"GET", "/v1/stats", HTTP_API, API_STATS},
    {"GET", "/v1/dead", HTTP_API, API_DEAD_LIST},
    {"GET", "/v1/dead:groups", HTTP_API, API_DEAD_GROUPS},
    {"POST", "/v1/dead:requeue", HTTP_API, API_DEAD_REQUEUE},
    {"POST", "/v1/dead:drop", HTTP_API, API_DEAD_DROP},
    {"GET", "/v1/dead/{id}", HTTP_API, API_DEAD_SHOW},
    {"GET", "/v1/retry-policies", HTTP_API, API_POLICY_LIST},
    {"GET", "/v1/retry-policies:match", HTTP_API, API_POLICY_MATCH},
    {"GET", "/v1/retry-policies/{pattern}", HTTP_API, API_POLICY_SHOW},
    {"PUT", "/v1/retry-policies/{pattern}", HTTP_API, API_POLICY_SET},
    {"DELETE", "/v1/retry-policies/{pattern}", HTTP_API, API_POLICY_REMOVE},
    {"GET", "/v1/recurring", HTTP_API, API_RECUR_LIST},
    {"GET", "/v1/recurring:preview", HTTP_API, API_RECUR_PREVIEW},
    {"GET", "/v1/recurring/{name}", HTTP_API, API_RECUR_SHOW},
    {"PUT", "/v1/recurring/{name}", HTTP_API, API_RECUR_SET},
    {"DELETE", "/v1/recurring/{name}", HTTP_API, API_RECUR_REMOVE},
    {"POST", "/v1/recurring/{name}:pause", HTTP_API, API_RECUR_PAUSE},
    {"POST", "/v1/recurring/{name}:resume", HTTP_API, API_RECUR_RESUME},
    {"POST", "/v1/recurring/{name}:run", HTTP_API, API_RECUR_RUN},
    {"GET", "/v1/recurring/{name}:history", HTTP_API, API_RECUR_HISTORY},
    {"GET", "/v1/whoami", HTTP_API, API_WHOAMI},
    {"GET", "/v1/slo", HTTP_API, API_SLO},
    {"GET", "/v1/forecast", HTTP_API, API_FORECAST},
    {"GET", "/v1/overview", HTTP_API, API_OVERVIEW},
    {"GET", "/v1/rates", HTTP_API, API_RATE_LIST},
    {"GET", "/v1/rates:match", HTTP_API, API_RATE_MATCH},
    {"GET", "/v1/rates/{exchange}", HTTP_API, API_RATE_SHOW},
    {"PUT", "/v1/rates/{exchange}", HTTP_API, API_RATE_SET},
    {"DELETE", "/v1/rates/{exchange}", HTTP_API, API_RATE_REMOVE},
    {"POST", "/v1/rates/{exchange}/pause", HTTP_API, API_RATE_PAUSE},
    {"POST", "/v1/rates/{exchange}/resume", HTTP_API, API_RATE_RESUME},
};

#define ROUTES (sizeof routes / sizeof routes[0])
_Static_assert(ROUTES <= HTTP_ROUTE_OTHER, "metrics count each route");

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
    bool is_exchange = strncmp(hole, "{exchange}", 10) == 0;
    if (!is_exchange && strchr(path + fixed, '/') != NULL)
        return false;
    /* What comes after an id or name, ":fail", is no part of one; a pattern may have colons of its own, and
     * so may an exchange, behind which "/pause" stands. */
    bool is_pattern = strncmp(hole, "{pattern}", 9) == 0;
    const char *after = strchr(hole, '}') + 1,
               *end = is_pattern ? NULL : strchr(path + fixed, is_exchange ? '/' : ':');
    if (strcmp(end != NULL ? end : "", after) != 0)
        return false;
    *id = bytes_of(path + fixed, end != NULL ? (size_t)(end - path) - fixed : strlen(path + fixed));
    return id->len > 0;
}

/* The first of this path; of those of the console, "/". */
int http_route_number(const struct http_route *route)
{
    int n = 0;
    while (route->handler == HTTP_CONSOLE ? routes[n].handler != HTTP_CONSOLE
                                          : strcmp(routes[n].path, route->path) != 0)
        n++;
    return n;
}

const char *http_route_name(int number)
{
    return number < (int)ROUTES ? routes[number].path : number == HTTP_ROUTE_OTHER ? "other" : NULL;
}

/* The methods that the path has; "": it is none. */
static void list_methods(const char *path, char allow[HTTP_ALLOW_SIZE])
{
    struct bytes id;
    size_t used = 0;
    for (size_t i = 0; i < ROUTES; i++)
        if (path_matches(&routes[i], path, &id))
            used += (size_t)snprintf(allow + used, HTTP_ALLOW_SIZE - used, "%s%s", used > 0 ? ", " : "",
                                     strcmp(routes[i].method, "GET") == 0 ? "GET, HEAD" : routes[i].method);
}

const struct http_route *http_route_find(const char *method, const char *path, struct bytes *id,
                                         char allow[HTTP_ALLOW_SIZE])
{
    const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
    allow[0] = '\0';
    for (size_t i = 0; i < ROUTES; i++)
        if (strcmp(routes[i].method, wanted) == 0 && path_matches(&routes[i], path, id))
            return &routes[i];
    list_methods(path, allow);
    return NULL;
}
