/* Between the gateway/http/ files. The only place of <microhttpd.h>. */
#ifndef POSTDATE_GATEWAY_HTTP_HTTP_INTERNAL_H
#define POSTDATE_GATEWAY_HTTP_HTTP_INTERNAL_H

#include "gateway/api/api_operation.h"
#include "gateway/api/tokens.h"
#include "gateway/http/framing.h"
#include "gateway/http/http.h"
#include <microhttpd.h>
#include <pthread.h>

#define HTTP_CONNECTIONS_MAX 2000
#define HTTP_CONNECTION_MEMORY (96u * 1024) /* a head as framing.h writes it, and what is read at once */
#define HTTP_BODIES_MAX (24u * 1024 * 1024) /* all request bodies together */
#define HTTP_BODY_EXTRA (64u * 1024)        /* of one, beside the message's body in base64 */
#define HTTP_CONDITION_MAX 1000             /* If-Match, bytes */
#define HTTP_KEY_MAX 255                    /* Idempotency-Key, bytes */
#define HTTP_PEER_SIZE 64
#define HTTP_ALLOW_SIZE 40

enum http_phase {
    HTTP_READING,  /* headers or body */
    HTTP_WORKING,  /* with the executor, suspended */
    HTTP_ANSWERED, /* the answer is there */
};

struct http_connection {
    struct http_connection *next, **previous;
    int fd;
    char peer[HTTP_PEER_SIZE];    /* the client's address and port */
    int64_t deadline_ms;          /* monotonic */
    struct http_request *request; /* NULL between two */
};

struct console_file;

/* Belongs to its connection and, while it is with the executor, to that, too. */
struct http_request {
    struct api_request api; /* first: the executor knows only this */
    struct http *http;
    struct tokens_grant grant; /* where api.scope comes from */
    struct MHD_Connection *connection;
    struct http_connection *from;
    char *target; /* as sent; cut up in place; NULL: no memory, or none */
    enum framing_refusal refusal;
    char key[HTTP_KEY_MAX + 1];
    char conditions[2][HTTP_CONDITION_MAX + 1];
    char peer[HTTP_PEER_SIZE]; /* outlives its connection */
    struct buf body;
    size_t body_limit;
    size_t unsent;              /* bytes of the answer that count in http->unsent_bytes */
    bool headers_seen, discard; /* discard: the answer is there, the rest of the body is read and forgotten */
    bool closing;               /* the answer is the last of its connection */
    bool refuse_now;            /* with discard: answer without reading the body, and close */
    bool gone;                  /* no answer */
    const char *content_type;   /* of the answer; NULL: JSON */
    char allow[HTTP_ALLOW_SIZE];     /* of the answer; "": none */
    const char *if_none_match;       /* the connection's; NULL: not given */
    const struct console_file *file; /* the answer; NULL: it is api.answer's body */
    int64_t began_ns;
    enum http_phase phase; /* guarded by http->lock, as the next two */
    int references;
    bool expired; /* the client was told that it took too long */
};

struct http {
    struct runtime *runtime;
    struct executor *executor;
    struct tokens *tokens;
    struct MHD_Daemon *daemon;
    char address[80];
    struct buf description; /* /openapi.json */
    pthread_mutex_t lock;   /* guards connections and the requests' phases */
    struct http_connection *connections;
    atomic_size_t body_bytes, unsent_bytes; /* of requests; of answers that clients have not taken yet */
    atomic_bool draining, ending;
    struct front *front;
    pthread_t front_thread;
};

/* front.c: a thread that accepts at this socket, which becomes its own; h->daemon is there. It ends when
 * h->ending is set, and the daemon with it. */
int http_front_start(struct http *h, int listening, unsigned max, struct err *e);
void http_front_join(struct http *h);

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

/* target.c: cuts the query off and into r->params, undoing percent-encoding in place. -1: e says why. */
int http_target_parse(char *target, struct api_request *r, struct err *e);
/* Undoes percent-encoding in a part of the path, in place. False: malformed, or a NUL. */
bool http_target_decode(struct bytes *part);

/* request.c */
struct http_request *http_request_open(struct http *h, struct MHD_Connection *c);
void http_request_unref(struct http_request *r);
/* The headers are there: routes and checks. Makes an answer when something is wrong. */
void http_request_headers(struct http_request *r, const char *method);
enum http_phase http_request_phase(struct http_request *r);
void http_request_body(struct http_request *r, const char *data, size_t len);
/* Its answer is made. */
void http_request_know_answer(struct http_request *r);
/* The body is there. Makes an answer when it ended wrongly. */
void http_request_end(struct http_request *r);

/* health.c: what is answered without the executor. */
void http_own_answer(struct http_request *r);

/* openapi.c: the description, as JSON. -1: out of memory. */
int http_openapi_print(struct buf *out, struct err *e);

/* console.c: finds the file; its response when it is found, without what all answers have. */
void http_console_answer(struct http_request *r);
struct MHD_Response *http_console_response(const struct http_request *r);

/* When nobody looks at it any more. */
void http_request_drop_body(struct http_request *r);

/* answer_budget.c: answers that their clients have not taken yet. */
/* Before it is done. False: this caller has left too many, and that is the answer. */
bool http_answers_admit(struct http_request *r);
/* Counts the answer that is to be sent, or makes another one where there is no room for it. */
void http_answers_count(struct http_request *r);
/* It is sent, or never will be. */
void http_answers_forget(struct http_request *r);

/* respond.c: queues r's answer. */
enum MHD_Result http_respond(struct http_request *r);

/* reaper.c */
/* Ends what takes too long; to be called now and then. */
void http_reap(struct http *h);
void http_connection_event(void *http, struct MHD_Connection *c, void **socket_context,
                           enum MHD_ConnectionNotificationCode code);
/* The connection has until now + http.timeout for what it does next. */
void http_connection_renew(struct http_connection *c, struct http *h, struct http_request *r);

/* process.c: CPU, memory, descriptors and start of this process, for Prometheus. */
void http_print_process(struct buf *out);

#endif
