/* Between gateway/http/front*.c and what clients share (front.c): the front's thread. */
#ifndef POSTDATE_GATEWAY_HTTP_FRONT_H
#define POSTDATE_GATEWAY_HTTP_FRONT_H

#include "gateway/http/http_internal.h"

#define FRONT_READ_SIZE ((size_t)32 * 1024)

struct front {
    struct http *http;
    int epoll, listening;
    bool accepting, paused; /* paused: there was no descriptor for one more */
    unsigned count, max;
    struct http_link *dead;
    int64_t now_ms;
    uint8_t data[FRONT_READ_SIZE];
};

#endif
