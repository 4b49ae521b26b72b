/* A request of the HTTP interface, once it is framed: method, target with its query, body. First byte: the
 * caller's scope; first line: what the database will answer; second: "METHOD target"; then the body. */
#include "gateway/http/http_internal.h"
#include "gateway/ops/api_operation.h"
#include "tests/fuzz/database.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

static const struct bytes exchanges[] = {{(const uint8_t *)"orders", 6}, {NULL, 0}};
static const struct api_scope scopes[] = {
    {.principal = "some", .name = "some", .exchanges = {.exchanges = exchanges, .count = 2}},
    {.principal = "one", .name = "one", .exchanges = {.exchanges = exchanges, .count = 1}},
    {.principal = "none", .name = "none", .reads_only = true, .exchanges = {.exchanges = exchanges}},
};

static void check_route(const struct api_operation *route, const char *method, const char *path,
                        struct bytes id, const char *allow)
{
    FUZZ_HOLDS(route == NULL || strcmp(route->method, method) == 0 ||
               (strcmp(method, "HEAD") == 0 && strcmp(route->method, "GET") == 0));
    FUZZ_HOLDS(route == NULL || http_route_number(route) < HTTP_ROUTE_OTHER);
    FUZZ_HOLDS(route == NULL || allow[0] == '\0');
    if (route != NULL && api_operation_id(route).len > 0 && !http_route_is_own(route))
        FUZZ_HOLDS(id.len > 0 && strlen(path) > id.len);
}

static void check_params(const struct api_request *r)
{
    FUZZ_HOLDS(r->params.count <= API_PARAMS_MAX);
    for (size_t i = 0; i < r->params.count; i++) {
        struct bytes name = r->params.list[i].name, value = r->params.list[i].value;
        FUZZ_HOLDS(name.len == 0 || memchr(name.data, '\0', name.len) == NULL);
        FUZZ_HOLDS(value.len == 0 || memchr(value.data, '\0', value.len) == NULL);
    }
}

/* As gateway/http/request.c does. */
static void run(char *target, const char *method, struct api_request *r)
{
    struct err e = {0};
    char allow[HTTP_ALLOW_SIZE];
    if (http_target_parse(target, r, &e) != 0) {
        fuzz_check_err(&e, ERR_REJECT);
        return;
    }
    check_params(r);
    const struct api_operation *route = http_route_find(method, target, &r->id, allow);
    check_route(route, method, target, r->id, allow);
    if (route == NULL || http_route_is_own(route) || !http_target_decode(&r->id))
        return;
    r->op = route;
    database_run(r);
    for (size_t i = 0; i < r->params.count && strcmp(route->name, "list") == 0; i++)
        if (bytes_start_with_str(r->params.list[i].name, "due_") && r->params.list[i].value.len > 60)
            FUZZ_HOLDS(r->answer.status >= 400); /* not read to its end */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes rest = bytes_of(data, size);
    uint8_t choice = fuzz_take_u8(&rest);
    struct api_request r = {.from = "127.0.0.1:1", .scope = choice % 4 < 3 ? &scopes[choice % 4] : NULL};
    database_script(fuzz_take_line(&rest));
    struct bytes line = fuzz_take_line(&rest);
    uint8_t *body = fuzz_copy(rest); /* parsers must not read on */
    char *text = fuzz_text(line), *blank = strchr(text, ' ');
    if (choice & 4)
        r.idempotency_key = bytes_of_str("key-1");
    if (blank != NULL) {
        *blank = '\0';
        char *target = fuzz_text(bytes_of_str(blank + 1));
        r.body = bytes_of(body, rest.len);
        api_answer_open(&r.answer);
        run(target, text, &r);
        api_answer_close(&r.answer);
        free(target);
    }
    free(text);
    free(body);
    return 0;
}
