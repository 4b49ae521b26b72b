/* From method and path to the call: one of the table of operations, or one of HTTP's own. */
#include "gateway/http/http_internal.h"

#include <stdio.h>
#include <string.h>

/* What needs no token and no database: health.c. */
#define OWN(called, where)                                                                                   \
    {                                                                                                        \
        .name = (called), .method = "GET", .path = (where), .params = ""                                     \
    }
static const struct api_operation own[] = {
    OWN("console", "/"),      OWN("console", "/console/{path}"), OWN("livez", "/livez"),
    OWN("readyz", "/readyz"), OWN("metrics", "/metrics"),        OWN("openapi", "/openapi.json"),
};
#define OWN_COUNT ((int)(sizeof own / sizeof own[0]))

const struct api_operation *http_route_call(int number)
{
    return number < OWN_COUNT ? &own[number] : &api_operations[number - OWN_COUNT];
}

bool http_route_is_own(const struct api_operation *op)
{
    return op >= own && op < own + OWN_COUNT;
}

static bool path_matches(const struct api_operation *op, const char *path, struct bytes *id)
{
    const char *hole = op->path != NULL ? strchr(op->path, '{') : NULL;
    if (hole == NULL)
        return op->path != NULL && strcmp(op->path, path) == 0;
    size_t fixed = (size_t)(hole - op->path);
    if (strncmp(op->path, path, fixed) != 0 || path[fixed] == '\0')
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
int http_route_number(const struct api_operation *op)
{
    int n = 0;
    while (n < HTTP_ROUTE_OTHER &&
           (http_route_call(n)->path == NULL || strcmp(http_route_call(n)->path, op->path) != 0))
        n++;
    return n == 1 ? 0 : n;
}

const char *http_route_name(int number)
{
    for (int n = 0; http_route_call(n)->name != NULL; n++)
        if (n == number)
            return http_route_call(n)->path;
    return number == HTTP_ROUTE_OTHER ? "other" : NULL;
}

/* The methods that the path has; "": it is none. */
static void list_methods(const char *path, char allow[HTTP_ALLOW_SIZE])
{
    struct bytes id;
    size_t used = 0;
    for (int n = 0; http_route_call(n)->name != NULL; n++)
        if (path_matches(http_route_call(n), path, &id))
            used += (size_t)snprintf(
                allow + used, HTTP_ALLOW_SIZE - used, "%s%s", used > 0 ? ", " : "",
                strcmp(http_route_call(n)->method, "GET") == 0 ? "GET, HEAD" : http_route_call(n)->method);
}

const struct api_operation *http_route_find(const char *method, const char *path, struct bytes *id,
                                            char allow[HTTP_ALLOW_SIZE])
{
    const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
    allow[0] = '\0';
    for (int n = 0; http_route_call(n)->name != NULL; n++)
        if (strcmp(http_route_call(n)->method, wanted) == 0 && path_matches(http_route_call(n), path, id))
            return http_route_call(n);
    list_methods(path, allow);
    return NULL;
}
