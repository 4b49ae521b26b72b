/* Finds the call for a request line (target, method, path): in the table of operations, or among the calls of
 * HTTP only. */
#include "gateway/http/http_internal.h"

#include <stdio.h>
#include <string.h>

/* --- The request target. What can't be decoded, and a NUL, are refused. */

/* In place. False: malformed, or a NUL. */
static bool decode_percent(char *text, size_t len, bool plus_is_blank, struct bytes *out)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '+' && plus_is_blank) {
            text[n++] = ' ';
        } else if (text[i] == '%') {
            bool whole = len - i > 2;
            int high = whole ? hex_digit((uint8_t)text[i + 1]) : -1,
                low = whole ? hex_digit((uint8_t)text[i + 2]) : -1;
            if (high < 0 || low < 0 || high * 16 + low == 0)
                return false;
            text[n++] = (char)(high * 16 + low);
            i += 2;
        } else {
            text[n++] = text[i];
        }
    }
    *out = bytes_of(text, n);
    return true;
}

/* Of a target in absolute form, as proxies get it (RFC 9112 3.2.2: any server takes it, and its host counts,
 * not the header), *host is the host with the port, and *target what follows. False: without a host, or with
 * a user. */
bool http_target_split(struct bytes *target, struct bytes *host)
{
    static const char *const schemes[] = {"http://", "https://"};
    for (size_t i = 0; i < 2; i++) {
        size_t start = strlen(schemes[i]), end = start;
        if (target->len < start || !framing_is_word(bytes_of(target->data, start), schemes[i]))
            continue;
        while (end < target->len && strchr("/?#", target->data[end]) == NULL)
            end++;
        *host = bytes_of(target->data + start, end - start);
        *target = bytes_of(target->data + end, target->len - end);
        return host->len > 0 && host->data[0] != ':' && memchr(host->data, '@', host->len) == NULL;
    }
    return true;
}

bool http_target_decode(struct bytes *part)
{
    return decode_percent((char *)(uintptr_t)part->data, part->len, false, part);
}

static int add_param(char *text, size_t len, struct api_request *r, struct err *e)
{
    struct api_param *p = &r->params.list[r->params.count];
    char *equals = memchr(text, '=', len);
    if (len == 0)
        return 0;
    if (r->params.count == API_PARAMS_MAX)
        return err_set(e, ERR_REJECT, "more than %d parameters", API_PARAMS_MAX);
    size_t name = equals != NULL ? (size_t)(equals - text) : len;
    char *value = equals != NULL ? equals + 1 : text + len;
    if (!decode_percent(text, name, true, &p->name) ||
        !decode_percent(value, (size_t)(text + len - value), true, &p->value))
        return err_set(e, ERR_REJECT,
                       "the query is not percent-encoded text (a %% needs two hexadecimal digits, "
                       "and NUL is not allowed)");
    r->params.count++;
    return 0;
}

int http_target_parse(char *target, struct api_request *r, struct err *e)
{
    char *query = strchr(target, '?');
    if (query == NULL)
        return 0;
    *query++ = '\0';
    for (;;) {
        size_t len = strcspn(query, "&");
        char end = query[len];
        if (add_param(query, len, r, e) != 0)
            return -1;
        if (end == '\0')
            return 0;
        query += len + 1;
    }
}

/* --- The call. */

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
    /* ":fail" after an id or name is not part of it. A pattern may contain colons, and so may an exchange,
     * which is followed by "/pause". */
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
