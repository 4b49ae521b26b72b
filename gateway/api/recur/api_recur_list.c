/* Recurring schedules: pages of them, and the next times of one. */
#include "gateway/api/api_internal.h"
#include "gateway/api/recur/recur_request.h"

#include <inttypes.h>
#include <string.h>

#define PAGES_MAX ((size_t)512 * 1024 * 1024)
#define TIMES_MAX 1000

static const char *const no_filter[] = {NULL};
static const char *const list_names[] = {"page_size", "page_token", NULL};
static const char *const preview_names[] = {"name", "cron", "dialect", "zone", "n", "from", "dst", NULL};
/* The last name, filled up with zeros. */
static const struct api_pages pages = {
    .version = 3, .names = no_filter, .least = 3, .most = API_POSITION_MAX};

/* 0: the name is there, len 0 of the first page. -1: answered. */
static int read_position(const struct api_context *c, struct api_request *r,
                         uint8_t position[API_POSITION_MAX], struct bytes *after)
{
    int len = api_page_read(c, r, &pages, position);
    while (len > 0 && position[len - 1] == 0)
        len--;
    *after = bytes_of(position, len > 0 ? (size_t)len : 0);
    return len < 0 ? -1 : 0;
}

static void print_page(const struct api_context *c, struct api_request *r, const struct recur_answer *answer)
{
    uint8_t position[API_POSITION_MAX] = {0};
    size_t len = strlen(answer->tag);
    struct buf *out = &r->answer.body;
    buf_reset(out);
    buf_put_str(out, "{\"recurring\":");
    buf_put_bytes(out, answer->text);
    buf_put_str(out, ",\"next_page_token\":");
    if (len > 0 && len < sizeof position) {
        memcpy(position, answer->tag, len);
        buf_put_str(out, "\"");
        api_page_print(c, r, &pages, bytes_of(position, (len + 2) / 3 * 3), out);
        buf_put_str(out, "\"}\n");
    } else {
        buf_put_str(out, "null}\n");
    }
    r->answer.status = 200;
    if (out->failed)
        api_fail(&r->answer, API_INTERNAL, "the page is too large: ask for fewer with page_size");
}

int api_recur_list(struct api_context *c, struct api_request *r, struct err *e)
{
    struct recur_request q = {.operation = RECUR_LIST};
    struct recur_answer answer;
    struct arena arena;
    struct buf argument;
    struct bytes after;
    uint8_t position[API_POSITION_MAX];
    int64_t size;
    if (api_params_check(r, list_names) != 0 || api_page_size(r, &size) != 0 ||
        read_position(c, r, position, &after) != 0)
        return 0;
    arena_init(&arena, PAGES_MAX);
    buf_init(&argument, 1024);
    /* A name needs no escapes. */
    buf_printf(&argument, "{\"limit\":%" PRId64 ",\"after\":\"%.*s\"}", size, (int)after.len,
               (const char *)after.data);
    q.argument = buf_bytes(&argument);
    int rc = recur_request_ask(c, r, &q, &arena, &answer, e);
    if (rc > 0)
        print_page(c, r, &answer);
    buf_free(&argument);
    arena_free(&arena);
    return rc < 0 ? -1 : 0;
}

/* Either the name of a schedule, or an expression. False: answered. */
static bool read_subject(struct api_request *r, struct recur_request *q, json_t *argument)
{
    static const char *const fields[] = {"cron", "dialect", "zone", "from", "dst"};
    q->name = r->id.len > 0 ? r->id : api_param(r, "name");
    int64_t n = 10;
    if (api_param_number(r, "n", TIMES_MAX, &n) != 0)
        return false;
    json_object_set_new(argument, "n", json_integer(n));
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        struct bytes v = api_param(r, fields[i]);
        if (v.data != NULL)
            json_object_set_new(argument, fields[i], json_stringn((const char *)v.data, v.len));
    }
    bool named = q->name.data != NULL, given = json_object_size(argument) > 1;
    if (named ? !given : json_object_get(argument, "cron") != NULL)
        return true;
    api_fail(&r->answer, API_INVALID_REQUEST,
             "give the name of a schedule, or cron with dialect, zone, from and dst as you like");
    return false;
}

int api_recur_preview(struct api_context *c, struct api_request *r, struct err *e)
{
    struct recur_request q = {.operation = RECUR_PREVIEW};
    int rc = 0;
    if (api_params_check(r, preview_names) != 0)
        return 0;
    json_t *argument = json_object();
    if (read_subject(r, &q, argument)) {
        char *text = json_dumps(argument, JSON_COMPACT);
        q.argument = bytes_of_str(text != NULL ? text : "{}");
        rc = recur_request_read(c, r, &q, "times", e);
        free(text);
    }
    json_decref(argument);
    return rc;
}
