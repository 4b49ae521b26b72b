/* Answers as HTTP/1.1. */
#include "gateway/http/http_internal.h"

#include <time.h>

static const char *reason_of(int status)
{
    static const struct {
        int status;
        const char *text;
    } reasons[] = {
        {200, "OK"},
        {201, "Created"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {412, "Precondition Failed"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {422, "Unprocessable Content"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {503, "Service Unavailable"},
    };
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (reasons[i].status == status)
            return reasons[i].text;
    return "Unknown";
}

/* What all answers begin with. */
static void print_head(struct http_request *r, int status, const char *type, struct buf *out)
{
    char date[40];
    struct tm utc;
    time_t now = time(NULL);
    gmtime_r(&now, &utc);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &utc); /* in the C locale: nobody sets another */
    buf_printf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\nContent-Type: %s\r\n", status, reason_of(status), date,
               type);
    metrics_http(&r->http->runtime->metrics,
                 r->api.op != NULL ? http_route_number(r->api.op) : HTTP_ROUTE_OTHER, status,
                 (clock_monotonic_ns() - r->began_ns) / 1000);
}

static void print_headers(const struct http_request *r, struct buf *out)
{
    const struct api_answer *a = &r->api.answer;
    char id[MESSAGE_ID_TEXT_SIZE];
    if (r->file == NULL)
        buf_put_str(out, "Cache-Control: no-store\r\n");
    else
        http_console_headers(r, out);
    buf_put_str(out, "X-Content-Type-Options: nosniff\r\n");
    if (r->allow[0] != '\0')
        buf_printf(out, "Allow: %s\r\n", r->allow);
    if (a->status == 401)
        buf_put_str(out, "WWW-Authenticate: Bearer\r\n");
    if (a->retry_after_s > 0)
        buf_printf(out, "Retry-After: %d\r\n", a->retry_after_s);
    if (a->tag[0] != '\0')
        buf_printf(out, "ETag: \"%s\"\r\n", a->tag);
    if (a->status == 201 && a->made == 1)
        buf_printf(out, "Location: /v1/messages/%s\r\n", message_id_format(a->id, id));
}

static void end_head(const struct http_request *r, int status, struct buf *out)
{
    if (status != 304)
        buf_printf(out, "Content-Length: %zu\r\n", r->link->body.len);
    if (r->link->last)
        buf_put_str(out, "Connection: close\r\n");
    else if (r->old)
        buf_put_str(out, "Connection: Keep-Alive\r\n");
    buf_put_str(out, "\r\n");
}

void http_respond(struct http_request *r)
{
    struct http_link *l = r->link;
    const struct api_answer *a = &r->api.answer;
    http_request_drop_body(r);
    http_answers_count(r);
    const char *type = r->content_type != NULL ? r->content_type
                       : a->status >= 400      ? "application/problem+json"
                                               : "application/json";
    l->last = r->refuse_now || r->closing || l->framing.last || atomic_load(&r->http->draining);
    l->body = r->file != NULL ? http_console_content(r) : buf_bytes(&a->body);
    print_head(r, a->status, type, &l->head);
    print_headers(r, &l->head);
    end_head(r, a->status, &l->head);
    if (r->head_only || a->status == 304)
        l->body = (struct bytes){0};
}

void http_respond_late(struct http_request *r)
{
    static const char late[] =
        "{\"type\":\"urn:postdate:problem:unknown-outcome\",\"title\":\"It may or may not have "
        "happened\",\"status\":503,\"detail\":\"no answer from the database in time\"}\n";
    struct http_link *l = r->link;
    l->last = l->framing.last || atomic_load(&r->http->draining);
    l->body = bytes_of_str(late);
    print_head(r, 503, "application/problem+json", &l->head);
    buf_put_str(&l->head, "Retry-After: 2\r\n");
    end_head(r, 503, &l->head);
}
