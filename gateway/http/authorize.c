/* Who may do what. The one place where a request gets its scope. */
#include "gateway/http/http_internal.h"

int http_authorize(struct http_request *r)
{
    r->api.scope = NULL; /* everything */
    if (!r->http->gateway->config->http.tokens)
        return 0;
    api_fail(&r->api.answer, API_UNAUTHORIZED, "http.tokens is on, and this token is not known");
    return -1;
}
