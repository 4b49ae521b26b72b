/* Between the gateway/http/ files. Thread: the front, unless stated otherwise. */
#ifndef POSTDATE_GATEWAY_HTTP_HTTP_INTERNAL_H
#define POSTDATE_GATEWAY_HTTP_HTTP_INTERNAL_H

#include "gateway/http/framing.h"
#include "gateway/http/http.h"
#include "gateway/ops/api_operation.h"
#include "gateway/ops/tokens.h"
#include <pthread.h>
#include <sys/socket.h>

#define HTTP_CONNECTIONS_MAX 2000
#define HTTP_CONDITION_MAX 1000 /* If-Match, bytes */
#define HTTP_KEY_MAX 255        /* Idempotency-Key, bytes */
#define HTTP_PEER_SIZE 64
#define HTTP_ALLOW_SIZE 40

/* A client's connection. One request at a time: further bytes wait in `in`, then in the socket. */
struct http_link {
    struct http_link *next, **previous;
    int fd;
    uint32_t wanted;           /* epoll's events */
    char peer[HTTP_PEER_SIZE]; /* the client's address and port */
    uint64_t caller;           /* of its address, until a request has a token: api_caller() */
    enum http_link_state {
        HTTP_READS,   /* reading a request, or idle */
        HTTP_WORKS,   /* the executor has its request */
        HTTP_SENDS,   /* the answer */
        HTTP_LINGERS, /* after the last answer: still reads and drops data, because closing at once could
                         discard the answer */
        HTTP_DEAD,    /* closed; freed at the end of the round */
    } state;
    struct framing framing;
    bool in_head;
    struct buf in; /* bytes received; those from in_at on are not parsed yet */
    size_t in_at;
    struct http_request *request; /* NULL between two */
    struct buf head;              /* of the answer */
    struct bytes body;            /* of the answer, after the head; the request's, or static */
    size_t sent;                  /* of both */
    bool last;                    /* the connection ends after the answer */
    int64_t deadline_ms;          /* monotonic: the deadline of its present state */
};

struct console_file;

struct http_request {
    struct api_request api; /* first: the executor knows only this */
    struct http *http;
    struct http_request *next;              /* in http->done */
    struct http_request *other, **previous; /* in http->requests */
    struct tokens_grant grant;              /* owns api.scope */
    struct http_link *link; /* NULL: it was closed, or has got the answer that the request took too long */
    char *target;           /* its path, split in place; NULL: out of memory, or none */
    char key[HTTP_KEY_MAX + 1];
    char conditions[2][HTTP_CONDITION_MAX + 1];
    char peer[HTTP_PEER_SIZE]; /* outlives its connection */
    struct buf body;
    size_t body_limit;
    size_t unsent;                   /* bytes of the answer included in http->unsent_bytes */
    bool answered;                   /* the answer is made: the rest of the body is read and dropped */
    bool closing;                    /* the answer is the last of its connection */
    bool refuse_now;                 /* answer without reading the body, and close */
    bool head_only;                  /* HEAD */
    bool old;                        /* HTTP/1.0 */
    bool works;                      /* the executor has it … */
    bool taken;                      /* … and one of its threads has probably begun it */
    const char *content_type;        /* of the answer; NULL: JSON */
    char allow[HTTP_ALLOW_SIZE];     /* of the answer; "": none */
    const struct console_file *file; /* the answer; NULL: it is api.answer's body */
    int64_t began_ns;
};

struct http {
    struct runtime *runtime;
    struct executor *executor;
    struct tokens *tokens;
    char address[80];
    struct buf description; /* /openapi.json */
    struct http_link *links;
    struct http_request *requests;   /* all, also those whose links are closed */
    size_t body_bytes, unsent_bytes; /* of requests; of answers that clients have not received yet */
    atomic_bool draining, ending;
    struct front *front;
    pthread_t front_thread;
    pthread_mutex_t lock;      /* guards done */
    struct http_request *done; /* answered by the executor, in any order */
    int wake;                  /* an eventfd: for done, and the end */
};

/* front.c: starts the front, which owns the listening socket from now on. It exits when h->ending is set and
 * h->wake written. */
int http_front_start(struct http *h, int listening, unsigned max, struct err *e);
void http_front_join(struct http *h);
/* Any thread. */
void http_front_wake(struct http *h);

/* route.c */
/* In paths, "{id}" and "{name}" match a segment, or its part before a colon; "{pattern}" a segment;
 * "{exchange}" the text before a slash; "{path}" the rest. */
/* The call with this number, from 0 on; the last one has no name. */
const struct api_operation *http_route_call(int number);
/* For metrics: the number of its path; HTTP_ROUTE_OTHER: not a route. */
int http_route_number(const struct api_operation *op);
#define HTTP_ROUTE_OTHER (METRICS_ROUTES - 1)
/* NULL: there is no such route. */
const char *http_route_name(int number);
/* Finds the operation, and fills id. NULL: none; if the path has other methods, allow lists them. */
const struct api_operation *http_route_find(const char *method, const char *path, struct bytes *id,
                                            char allow[HTTP_ALLOW_SIZE]);
/* Is it a call of HTTP only, which is not in the table of operations? */
bool http_route_is_own(const struct api_operation *op);

/* Splits a target in absolute form, as sent to proxies (RFC 9112 3.2.2: servers must accept it, and its host
 * overrides the header): *host gets the host with the port, *target the rest. False: it has no host, or has a
 * user. */
bool http_target_split(struct bytes *target, struct bytes *host);
/* Splits off the query into r->params, and percent-decodes in place. -1: e. */
int http_target_parse(char *target, struct api_request *r, struct err *e);
/* Percent-decodes a part of the path in place. False: malformed, or contains NUL. */
bool http_target_decode(struct bytes *part);

/* request.c */
/* "127.0.0.1:8480", "[::1]:8480" */
void http_name_address(const struct sockaddr *a, socklen_t len, char *out, size_t size);
struct http_request *http_request_open(struct http *h, struct http_link *l);
void http_request_close(struct http_request *r);
/* Routes and checks a request whose headers are complete. Makes the answer if there is an error. */
void http_request_headers(struct http_request *r, const struct framing_head *head);
/* Answers an invalid or too slow request. */
void http_request_refuse(struct http_request *r, enum framing_refusal why);
/* Frees the body when it is no longer needed. */
void http_request_drop_body(struct http_request *r);

/* health.c: answers calls without the executor. */
void http_own_answer(struct http_request *r);

/* openapi.c: the description, as JSON. -1: out of memory. */
int http_openapi_print(struct buf *out, struct err *e);

/* console.c: answers with a file of the console; its content, and further headers of the answer. */
void http_console_answer(struct http_request *r);
struct bytes http_console_content(const struct http_request *r);
void http_console_headers(const struct http_request *r, struct buf *out);

#endif
