/* Between gateway/http/front*.c and what clients share (shares.c): the front's thread. */
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

/* link.c */
/* For what it does next. */
void front_renew_deadline(struct front *f, struct http_link *l);
/* It has no request any more; one that the executor has is freed when it comes back. */
void front_leave_request(struct http_link *l);
/* At once; its memory is freed at the end of the round. Twice is once. */
void front_close_link(struct front *f, struct http_link *l);
/* A socket that has nothing now. */
bool front_is_patience(int error);
/* When no event of this round can name those that were closed. */
void front_free_dead(struct front *f);

/* front_accept.c */
void front_want_clients(struct front *f, bool accepting);
void front_accept(struct front *f);

#endif
