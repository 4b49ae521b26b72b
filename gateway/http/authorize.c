/* Who may do what. The one place where a request over HTTP gets its scope. */
#include "gateway/http/http_internal.h"

#include <string.h>

/* "Bearer" and the token (RFC 6750); len 0: none. */
static struct bytes bearer(const char *header)
{
    static const char scheme[] = "Bearer ";
    size_t n = sizeof scheme - 1;
    if (header == NULL || strncasecmp(header, scheme, n) != 0)
        return (struct bytes){0};
    return bytes_of_str(header + n + strspn(header + n, " "));
}

int http_authorize(struct http_request *r)
{
    const char *header = MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, "Authorization");
    r->api.scope = NULL; /* everything, where no tokens are asked for */
    if (tokens_admit(r->http->tokens, bearer(header), &r->grant, &r->api.answer) != 0)
        return -1;
    r->api.scope = r->grant.scope;
    return 0;
}
