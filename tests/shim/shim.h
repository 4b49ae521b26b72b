/* Between the files of the library for LD_PRELOAD: tests/shim/README.md says what it does. */
#ifndef POSTDATE_TESTS_SHIM_H
#define POSTDATE_TESTS_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SHIM_EXPORT __attribute__((visibility("default")))

/* What a connection of the program is for. */
enum shim_role {
    SHIM_NO_SERVER, /* not a socket, or not one that the program connected */
    SHIM_POSTGRES,
    SHIM_AMQP, /* to RabbitMQ, for nothing that has points */
    SHIM_PUBLISHER,
    SHIM_HANDOVER,
    SHIM_INTAKE,
    SHIM_RELAY,
    SHIM_PROVER,
    SHIM_PARKER,
    SHIM_CONTROL,
};

enum shim_failure { SHIM_GO_ON, SHIM_FAIL, SHIM_SHORT };

/* --- shim.c; every function may be called from any thread */
/* The function of that name behind this library. */
void *shim_next(const char *name);
/* True when `what`.`side` is the point that was asked for, and now is the time. */
bool shim_reach(const char *what, const char *side);
/* After that: says where, and ends the program as kill -9 does; or returns, and the connection is to be cut.
 */
void shim_end(const char *what, const char *side);
/* Both in one. True: cut the connection. */
bool shim_point(const char *what, const char *side);
/* Shall this call fail? `caller`: who asks for memory; role: whose socket it is (SHIM_NO_SERVER for memory).
 */
enum shim_failure shim_failure_now(const char *call, const void *caller, enum shim_role role);

/* --- sql.c */
/* The query of sql/query that this thread prepares or executes now, or NULL. */
extern _Thread_local const char *shim_statement;

/* --- stream.c: what goes through a connection to RabbitMQ */
/* Notes a connection that the program makes. */
void shim_stream_begin(int fd);
enum shim_role shim_stream_role(int fd);

/* Which methods begin in some bytes of a stream. */
struct shim_seen {
    bool publish, ack, deliver, returned;
    bool relayed; /* an id that came out of the exit queue is in them; there: any id */
};

/* Looks at bytes that are about to be sent or were received, without counting them as gone. */
struct shim_seen shim_stream_peek(int fd, const void *data, size_t len, bool out);
/* These bytes went through. */
void shim_stream_pass(int fd, const void *data, size_t len, bool out);

#endif
