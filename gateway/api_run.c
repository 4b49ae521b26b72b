#include "gateway/api_internal.h"
int api_run(struct api_context *c, struct api_request *r, struct err *e)
{
    (void)c;
    api_fail(&r->answer, API_NOT_FOUND, "later");
    return e == NULL ? -1 : 0;
}
