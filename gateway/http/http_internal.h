/* Between the gateway/http/ files. Everything here is the front's thread's, but where it says otherwise. */
#ifndef POSTDATE_GATEWAY_HTTP_HTTP_INTERNAL_H
#define POSTDATE_GATEWAY_HTTP_HTTP_INTERNAL_H

#include "gateway/api/api_operation.h"
#include "gateway/api/tokens.h"
#include "gateway/http/framing.h"
#include "gateway/http/http.h"
#include <pthread.h>
#include <sys/socket.h>

#define HTTP_CONNECTIONS_MAX 2000
#define HTTP_CONDITION_MAX 1000 /* If-Match, bytes */
#define HTTP_KEY_MAX 255        /* Idempotency-Key, bytes */
#define HTTP_PEER_SIZE 64
#define HTTP_ALLOW_SIZE 40

/* A client's connection. One request at a time: what follows waits in `in`, and then in the socket. */
struct http_link {
    struct http_link *next, **previous;
    int fd;
    uint32_t wanted;           /* epoll's events */
    char peer[HTTP_PEER_SIZE]; /* the client's address and port */
    uint64_t caller;           /* its address, until the head of a request has named a token: api_caller() */
    enum http_link_state {
        HTTP_READS,   /* a request, or between two */
        HTTP_WORKS,   /* its request is with the executor */
        HTTP_SENDS,   /* the answer */
        HTTP_LINGERS, /* after the last answer: the client would lose it if what it still sends met a closed
                         socket */
        HTTP_DEAD,    /* of no use; freed at the end of the round */
    } state;
    struct framing framing;
    bool in_head;
    struct buf in; /* read, and not looked at before in_at */
    size_t in_at;
    struct http_request *request; /* NULL between two */
    struct buf head;              /* of the answer */
    struct bytes body;            /* of it, behind the head; the request's, or static */
    size_t sent;                  /* of both */
    bool last;                    /* nothing follows the answer */
    int64_t deadline_ms;          /* monotonic: for what it does now */
};

struct console_file;

struct http_request {
    struct api_request api; /* first: the executor knows only this */
    struct http *http;
    struct http_request *next;              /* in http->done */
    struct http_request *other, **previous; /* in http->requests */
    struct tokens_grant grant;              /* where api.scope comes from */
    struct http_link *link;                 /* NULL: it is gone, or has the answer that it took too long */
    char *target;                           /* its path; cut up in place; NULL: no memory, or none */
    char key[HTTP_KEY_MAX + 1];
    char conditions[2][HTTP_CONDITION_MAX + 1];
    char peer[HTTP_PEER_SIZE]; /* outlives its connection */
    struct buf body;
    size_t body_limit;
    size_t unsent;                   /* bytes of the answer that count in http->unsent_bytes */
    bool answered;                   /* the answer is there: the rest of the body is read and forgotten */
    bool closing;                    /* the answer is the last of its connection */
    bool refuse_now;                 /* answer without reading the body, and close */
    bool head_only;                  /* HEAD */
    bool old;                        /* HTTP/1.0 */
    bool works;                      /* the executor has it … */
    bool taken;                      /* … and one of its threads, as far as is known */
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
    struct http_request *requests;   /* all, also those whose links are gone */
    size_t body_bytes, unsent_bytes; /* of requests; of answers that clients have not taken yet */
    atomic_bool draining, ending;
    struct front *front;
    pthread_t front_thread;
    pthread_mutex_t lock;      /* guards done */
    struct http_request *done; /* answered by the executor, in any order */
    int wake;                  /* an eventfd: for done, and the end */
};

/* front.c: a thread that accepts at this socket, which becomes its own, and serves. It ends when h->ending is
 * set and h->wake written. */
int http_front_start(struct http *h, int listening, unsigned max, struct err *e);
void http_front_join(struct http *h);
/* Any thread. */
void http_front_wake(struct http *h);

/* route.c */
/* In paths, "{id}" and "{name}" match a segment, or what is before a colon; "{pattern}" a segment;
 * "{exchange}" what is before a slash; "{path}" the rest. */
/* All calls by number, from 0 on; the last one has no name. */
const struct api_operation *http_route_call(int number);
/* For metrics: the number of its path; that of what is no route. */
int http_route_number(const struct api_operation *op);
#define HTTP_ROUTE_OTHER (METRICS_ROUTES - 1)
/* NULL: no route has this number. */
const char *http_route_name(int number);
/* Fills id. NULL: none; for a path with other methods, allow says which. */
const struct api_operation *http_route_find(const char *method, const char *path, struct bytes *id,
                                            char allow[HTTP_ALLOW_SIZE]);
/* It is HTTP's own, and not one of the table of operations. */
bool http_route_is_own(const struct api_operation *op);

/* Of a target in absolute form, as proxies get it (RFC 9112 3.2.2: any server takes it, and its host counts,
 * not the header), *host is the host with the port, and *target what follows. False: without a host, or with
 * a user. */
bool http_target_split(struct bytes *target, struct bytes *host);
/* Cuts the query off and into r->params, undoing percent-encoding in place. -1: e says why. */
int http_target_parse(char *target, struct api_request *r, struct err *e);
/* Undoes percent-encoding in a part of the path, in place. False: malformed, or a NUL. */
bool http_target_decode(struct bytes *part);

/* request.c */
/* "127.0.0.1:8480", "[::1]:8480" */
void http_name_address(const struct sockaddr *a, socklen_t len, char *out, size_t size);
struct http_request *http_request_open(struct http *h, struct http_link *l);
void http_request_close(struct http_request *r);
/* The headers are there: routes and checks. Makes an answer when something is wrong. */
void http_request_headers(struct http_request *r, const struct framing_head *head);
/* What is no valid request, or not in time. */
void http_request_refuse(struct http_request *r, enum framing_refusal why);
/* When nobody looks at it any more. */
void http_request_drop_body(struct http_request *r);

/* health.c: what is answered without the executor. */
void http_own_answer(struct http_request *r);

/* openapi.c: the description, as JSON. -1: out of memory. */
int http_openapi_print(struct buf *out, struct err *e);

/* console.c: finds the file; its content, and the headers that its answer has besides. */
void http_console_answer(struct http_request *r);
struct bytes http_console_content(const struct http_request *r);
void http_console_headers(const struct http_request *r, struct buf *out);

/* process.c: CPU, memory, descriptors and start of this process, for Prometheus. */
void http_print_process(struct buf *out);

#endif
