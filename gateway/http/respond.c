#include "gateway/http/http_internal.h"

#include <stdio.h>

static void add_headers(struct MHD_Response *m, const struct http_request *r, int status)
{
    const struct api_answer *a = &r->api.answer;
    char text[80], id[MESSAGE_ID_TEXT_SIZE];
    const char *type = status >= 400 && r->content_type == NULL ? "application/problem+json"
                       : r->content_type != NULL                ? r->content_type
                                                                : "application/json";
    MHD_add_response_header(m, "Content-Type", type);
    if (r->file == NULL)
        MHD_add_response_header(m, "Cache-Control", "no-store");
    MHD_add_response_header(m, "X-Content-Type-Options", "nosniff");
    if (r->allow[0] != '\0')
        MHD_add_response_header(m, "Allow", r->allow);
    if (status == 401)
        MHD_add_response_header(m, "WWW-Authenticate", "Bearer");
    if (a->retry_after_s > 0) {
        snprintf(text, sizeof text, "%d", a->retry_after_s);
        MHD_add_response_header(m, "Retry-After", text);
    }
    if (a->tag[0] != '\0') {
        snprintf(text, sizeof text, "\"%s\"", a->tag);
        MHD_add_response_header(m, "ETag", text);
    }
    if (a->status == 201 && a->made == 1) {
        snprintf(text, sizeof text, "/v1/messages/%s", message_id_format(a->id, id));
        MHD_add_response_header(m, "Location", text);
    }
    if (r->refuse_now || r->closing || atomic_load(&r->http->draining))
        MHD_add_response_header(m, "Connection", "close");
}

enum MHD_Result http_respond(struct http_request *r)
{
    static char late[] =
        "{\"type\":\"urn:postdate:problem:unknown-outcome\",\"title\":\"It may or may not have "
        "happened\",\"status\":503,\"detail\":\"no answer from the database in time\"}\n";
    struct api_answer *a = &r->api.answer;
    struct MHD_Response *m;
    if (!r->expired) {
        http_request_drop_body(r);
        http_answers_count(r);
    }
    /* The executor may still write into the answer of a request that expired. */
    int status = r->expired ? 503 : a->status;
    if (r->expired)
        m = MHD_create_response_from_buffer(sizeof late - 1, late, MHD_RESPMEM_PERSISTENT);
    else if (r->file != NULL)
        m = http_console_response(r);
    else
        m = MHD_create_response_from_buffer(a->body.len, a->body.data, MHD_RESPMEM_PERSISTENT);
    if (m == NULL)
        return MHD_NO;
    if (r->expired) {
        MHD_add_response_header(m, "Content-Type", "application/problem+json");
        MHD_add_response_header(m, "Retry-After", "2");
    } else {
        add_headers(m, r, status);
    }
    metrics_http(&r->http->runtime->metrics,
                 r->api.op != NULL ? http_route_number(r->api.op) : HTTP_ROUTE_OTHER, status,
                 (clock_monotonic_ns() - r->began_ns) / 1000);
    /* From here on the client has as long again to take the answer. */
    http_connection_renew(r->from, r->http, r);
    enum MHD_Result queued = MHD_queue_response(r->connection, (unsigned)status, m);
    MHD_destroy_response(m);
    return queued;
}
