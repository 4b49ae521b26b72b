/* Shared by the files of amqp/; the only header that includes rabbitmq-c. Nothing outside amqp/ includes
 * this. */
#ifndef POSTDATE_AMQP_CONNECTION_BROKER_INTERNAL_H
#define POSTDATE_AMQP_CONNECTION_BROKER_INTERNAL_H

#include "amqp/connection/broker.h"
#include "amqp/connection/broker_hosts.h"
#include "core/base/buf.h"
#include <sys/types.h>

/* rabbitmq-c 0.12 moved its headers; the old names still work there but warn. */
#ifdef __has_include
/* cppcheck-suppress preprocessorErrorDirective */
#if __has_include(<rabbitmq-c/amqp.h>)
#define BROKER_NEW_HEADERS
#endif
#endif
#ifdef BROKER_NEW_HEADERS
#include <rabbitmq-c/amqp.h>
#include <rabbitmq-c/framing.h>
#include <rabbitmq-c/ssl_socket.h>
#include <rabbitmq-c/tcp_socket.h>
#else
#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>
#endif

#define BROKER_CHANNEL 1
#define BROKER_FRAME_MAX                                                                                     \
    131072 /* the largest frame that we accept and send; a server may request a smaller one */
#define BROKER_FRAME_OVERHEAD 8                   /* type, channel, size, end mark */
#define BROKER_GATHERED_BYTES 32768               /* publishes and acknowledgements are sent at this size */
#define BROKER_CALL_NS (10 * INT64_C(1000000000)) /* for the answer to a request */
#define BROKER_NAME_MAX 255                       /* AMQP short strings */

/* The percent-decoded parts of a URL. */
struct broker_host {
    int port;
    char name[256];
};

struct broker_url {
    bool tls;
    size_t host_count; /* at least one */
    struct broker_host hosts[BROKER_HOSTS_MAX];
    char user[BROKER_NAME_MAX + 1];
    char password[BROKER_NAME_MAX + 1];
    char vhost[BROKER_NAME_MAX + 1];
};

#define BROKER_QUIET_MS 30000

struct broker {
    amqp_connection_state_t conn; /* connected by the library, then used by broker_frames.c alone */
    int fd; /* a duplicate of the library's descriptor: ours until the broker is freed */
    bool tls;
    void *ssl;          /* SSL *, in broker_tls.c */
    bool tls_has_cert;  /* a client certificate is shown */
    char tls_host[256]; /* whom the certificate must be for */
    char tls_why[420];  /* why the server's certificate was refused; "" it was not */
    bool dead;          /* the channel or connection is gone: every further call fails */
    bool gone;          /* the connection is closed: no close is sent */
    int close_code;     /* with which the server closed the channel or the connection; 0: it did not */
    bool can_reopen;    /* only the channel is gone, and its closing is answered */
    size_t frame_max;
    uint64_t next_seq; /* delivery tag of the next publish; 0 without confirms */
    struct buf out;    /* whole frames that are not sent yet */
    uint8_t *in;       /* of in_size; unread data is in_start..in_len */
    size_t in_start, in_len, in_size;
    size_t skip;      /* bytes of a too large header that are still to be received and discarded */
    size_t kept;      /* whole frames from in_start on that were received before the answer to a request */
    amqp_pool_t pool; /* arguments of the method that was read last */
    int heartbeat_s;  /* negotiated; 0: none */
    int64_t heard_ns, spoke_ns; /* monotonic */
    int64_t check_ms;           /* monotonic: when to check the consumers; 0: not requested yet */
    /* An alarm notice received between the frames of a delivery: reported by the next broker_next_event. */
    enum broker_event_kind deferred;
    char deferred_text[256];
    char address[BROKER_ADDRESS_MAX];
    struct broker_hosts *hosts; /* NULL: failures are not remembered */
    size_t host, host_count;    /* which of the URL's it is */
    char cluster_name[128];
    char version[64];
    char product[64];
};

/* --- broker_url.c */
/* Error texts follow the option's name. */
int broker_url_parse(const char *url, struct broker_url *out, struct err *e);
/* "host:port" for messages. */
void broker_host_address(const struct broker_host *h, char *out, size_t out_size);

/* --- broker_connect.c */
/* The order in which to try the hosts: random, recently failed ones last. h NULL: random. */
void broker_hosts_order(struct broker_hosts *h, size_t count, size_t order[static BROKER_HOSTS_MAX]);
void broker_hosts_worked(struct broker_hosts *h, size_t i);
/* why NULL: an established connection ended; a new one may still succeed. */
void broker_hosts_failed(struct broker_hosts *h, size_t i, const struct err *why, const char *address);

/* --- broker_frames.c */
/* Marks the broker dead: a library status (< 0), met while doing `what`, e.g. "declare queue 'x'". Sets e,
 * returns -1. */
int broker_fail_status(struct broker *b, int status, const char *what, struct err *e);
/* Nothing more is sent or read on this connection. */
int broker_stream_init(struct broker *b); /* -1: out of memory */
void broker_stream_free(struct broker *b);

/* --- broker_frames.c */
struct broker_frame {
    uint8_t type;
    uint16_t channel;
    amqp_method_t method;      /* AMQP_FRAME_METHOD */
    struct bytes raw, payload; /* views, valid as all of it until the next frame is read */
};

/* 1: a frame that is no heartbeat; 0: none until the deadline; -1. */
int broker_read_frame(struct broker *b, const char *what, int64_t deadline_ns, struct broker_frame *f,
                      struct err *e);
/* Does the server close the channel or the connection? */
bool broker_is_close(const struct broker_frame *f);
/* True if broker_read_frame can return without reading the socket. */
bool broker_frame_waits(struct broker *b);

/* Sends what is gathered in b->out, as broker_transmit_until. */
int broker_flush_until(struct broker *b, const char *what, int64_t deadline_ns, struct err *e);
/* The same, within 20 seconds: if RabbitMQ reads nothing for so long, the connection is lost. */
int broker_send(struct broker *b, struct err *e);

enum broker_phase {
    BROKER_LOGIN,
    BROKER_DECLARE,
    BROKER_STREAM, /* publishing, consuming, waiting */
};

/* A channel.close or connection.close from the server; it is answered. Sets e, returns -1, marks the broker
 * dead. */
int broker_closed(struct broker *b, const amqp_method_t *method, enum broker_phase phase, const char *what,
                  struct err *e);

struct broker_call {
    uint16_t channel;
    amqp_method_number_t request;
    void *decoded; /* the request's arguments: a struct of the library's */
    amqp_method_number_t reply;
    enum broker_phase phase;
    const char *what; /* for errors, e.g. "declare queue 'x'" */
    enum {
        BROKER_KEEP,
        BROKER_DROP,
        BROKER_REFUSE
    } others; /* what to do with frames received before the answer */
};

/* Gathers the request in b->out. */
int broker_put_method(struct broker *b, const struct broker_call *c, struct err *e);
/* Sends it, behind what is gathered. */
int broker_send_method(struct broker *b, const struct broker_call *c, struct err *e);
int broker_send_method_until(struct broker *b, const struct broker_call *c, int64_t deadline_ns,
                             struct err *e);
/* Waits for the reply; *answer (may be NULL) is valid until the next frame is read. Frames received before it
 * are kept for broker_read_frame, unless c->others specifies otherwise. */
int broker_await(struct broker *b, const struct broker_call *c, int64_t deadline_ns, void **answer,
                 struct err *e);
/* Both. */
int broker_request_until(struct broker *b, const struct broker_call *c, int64_t deadline_ns, void **answer,
                         struct err *e);
/* The same, within ten seconds. */
int broker_request(struct broker *b, const struct broker_call *c, void **answer, struct err *e);

/* --- broker_connect.c */
int broker_open_channel(struct broker *b, const char *what, struct err *e);

/* --- broker_tls.c */
/* Do amqp.ca_file, cert_file and key_file exist? ERR_CONFIG. */
int broker_tls_check_files(const struct broker_options *o, struct err *e);
/* A socket that trusts o->ca_file (or the system's authorities) and only a certificate for `host`; b->conn
 * owns it. NULL with ERR_CONFIG: files; ERR_BUG: OpenSSL. */
amqp_socket_t *broker_tls_socket(struct broker *b, const struct broker_options *o, const char *host,
                                 struct err *e);
/* The TLS reason, with a remedy, for a failure with this library status that just occurred on b in the
 * calling thread; NULL: none. Valid until the next call. */
const char *broker_tls_reason(const struct broker *b, int status);
/* After the handshake: takes the library's session over, for b->fd. */
int broker_tls_take_over(struct broker *b, struct err *e);
void broker_tls_free(struct broker *b);
/* As in broker_frames.c. */
ssize_t broker_tls_receive(struct broker *b, void *data, size_t len, short *events);
ssize_t broker_tls_transmit(struct broker *b, const void *data, size_t len, short *events);
bool broker_tls_pending(const struct broker *b);

/* --- broker_events.c */
/* Before any request: refuses a dead connection and flushes, so that the server sees things in the order of
 * the calls. */
int broker_begin(struct broker *b, struct err *e);

static inline amqp_bytes_t broker_amqp_bytes(struct bytes v)
{
    /* The library's type has no const; it only reads. */
    return (amqp_bytes_t){.len = v.len, .bytes = (void *)(uintptr_t)v.data};
}

static inline struct bytes broker_bytes(amqp_bytes_t v)
{
    return bytes_of(v.bytes, v.len);
}

#endif
