/* The front: the thread that serves HTTP connections (front.c). */
#ifndef POSTDATE_GATEWAY_HTTP_FRONT_H
#define POSTDATE_GATEWAY_HTTP_FRONT_H

#include "gateway/http/http_internal.h"

#define FRONT_READ_SIZE ((size_t)32 * 1024)

struct front {
    struct http *http;
    int epoll, listening;
    bool accepting, paused; /* paused: no file descriptor was left for a new connection */
    unsigned count, max;
    struct http_link *dead;
    int64_t now_ms;
    uint8_t data[FRONT_READ_SIZE];
};

#endif
