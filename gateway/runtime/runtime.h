/* State of the whole gateway, for all threads: the configuration, the progress of start and stop, the
 * database's clock, the servers' status, and notifications between threads. State of the delivery alone is in
 * pipeline.h, lease.h and handover.h. Each member is documented with how it is guarded. */
#ifndef POSTDATE_GATEWAY_RUNTIME_RUNTIME_H
#define POSTDATE_GATEWAY_RUNTIME_RUNTIME_H

#include "amqp/connection/broker_hosts.h"
#include "amqp/topology/owner.h"
#include "amqp/topology/transport.h"
#include "core/base/clock.h"
#include "gateway/config/cells.h"
#include "gateway/config/config.h"
#include "gateway/runtime/history.h"
#include "gateway/runtime/metrics.h"
#include "gateway/runtime/notifier.h"
#include "gateway/runtime/server_status.h"
#include "sql/pipeline/instance.h"
#include "sql/pipeline/locked.h"
#include <pthread.h>
#include <stdatomic.h>

/* A stop has stages, so that messages in flight are settled in the database. */
enum stop_stage {
    STOP_NOT,
    STOP_INTAKE,     /* no more messages are accepted or claimed */
    STOP_PUBLISHERS, /* messages not begun are put back, confirms awaited */
    STOP_SETTLER,
    STOP_RELAY, /* settled messages are acknowledged */
    STOP_LEASE_KEEPER,
};

enum up_bit {
    UP_INTAKE = 1,
    UP_CLAIMER = 2,
    UP_FAST = 4,
    UP_SERIAL = 8,
    UP_LEASE_KEEPER = 16,
    UP_HANDOVER = 32, /* this and the next only with a transport */
    UP_HANDOVER_FEEDER = 64,
    UP_RELAY = 128,
    UP_CONTROL = 256,
    UP_PATIENT = 512,
    UP_POLICIES = 1024,
};

struct store_item;

struct runtime {
    /* Set before the threads start. */
    const struct config *config;
    const struct cells *cells;     /* NULL: cells.file names none */
    char name[INSTANCE_NAME_SIZE]; /* host:pid */
    char identity[OWNER_ID_SIZE];  /* of the schema */
    int exit_queues, exit_bound;   /* of transport_options, at the start */
    int up_wanted;                 /* enum up_bit of all threads of this gateway */
    /* Used by one thread at a time: startup, then the intake. */
    bool owner_refused; /* logged that the owner cannot be recorded in the vhost */
    bool cell_refused;  /* logged that the binding of this cell cannot be checked */

    /* Atomic: any thread. */
    atomic_int stop_stage;    /* enum stop_stage, never decreases */
    atomic_int code;          /* the exit code if the program exits by itself */
    atomic_int up;            /* enum up_bit of threads that have connected once */
    atomic_int cell_number;   /* of the database, by settings_take_cell; -1: none, or not known yet */
    atomic_bool stored_ready; /* schema and partitions are checked: messages can be stored */
    atomic_bool publishing;   /* the fast publisher is connected and not blocked: messages can be claimed */
    /* how RabbitMQ holds messages; NULL: the gateway holds all. Set before the threads start, except those of
     * HTTP, which read it earlier */
    const struct transport *_Atomic transport;
    /* how often the intake had stored all deliveries and waited without getting more */
    atomic_uint intake_rests;
    atomic_int intake_queues;       /* their number, by the last declaration; 0: none yet */
    atomic_bool said_queues;        /* logged that other gateways are configured with another number */
    atomic_size_t control_requests; /* requests of the control queue in progress */

    pthread_mutex_t clock_lock;
    struct db_clock clock; /* guarded by clock_lock, as … */
    int64_t suspended_ms;  /* … the total time that this machine had been suspended, at the last sample */
    atomic_int_fast64_t clock_back_ms; /* by how much the database's clock was set back, in total */
    pthread_mutex_t locked_lock;
    /* guarded by locked_lock: locked days, which the claimer leaves out (locks.h) */
    struct locked_days locked;

    /* Guard themselves. */
    struct server_status postgres, rabbitmq;
    struct history history;
    struct broker_hosts *hosts; /* of amqp.url */
    struct metrics metrics;
    /* Notified by threads that store messages: the claimer, if one is due within the lead; the feeder, by
     * group commits always, by the intake only if it has left a message to the feeder. */
    struct notifier claimer_notifier, handover_feeder_notifier;
};

/* The notifiers are the supervisor's to open. */
int runtime_open(struct runtime *rt, const struct config *c, struct err *e);

/* Has the stop reached that stage? */
bool runtime_stopping(struct runtime *rt, enum stop_stage stage);
void runtime_set_up(struct runtime *rt, enum up_bit bit);
/* "timer", "native", "plugin" or "ttl". */
const char *runtime_transport_name(const struct runtime *rt);

/* Estimated database time, never ahead of it (core/base/clock.h); false before the first sample. Rounded down
 * to ms.
 */
bool runtime_now_ms(struct runtime *rt, int64_t *out_ms);
/* The same in us, after the first sample. */
int64_t runtime_now_us(struct runtime *rt);
/* The latest possible database time: includes the time for which this machine was suspended since the last
 * sample. INT64_MAX before the first sample. */
int64_t runtime_latest_ms(struct runtime *rt);
/* The time in ns from now until that database time, after the first sample. */
int64_t runtime_ns_until(struct runtime *rt, int64_t at_ms);
/* Processes an answer with the database's clock; called by lease_hear_clock. Returns how far in ns the clock
 * was set forward, or this machine was suspended, since the last answer; < 0: set back. */
enum clock_answer {
    CLOCK_ASKED,      /* from a query for the clock, which is fast */
    CLOCK_CAME_ALONG, /* part of another statement's result */
};
int64_t runtime_hear_clock(struct runtime *rt, const struct db_clock_answer *a, enum clock_answer kind);

/* The claimer looks twice per lead: notifies it if one of these items was stored and is due within a lead
 * from now_ms. */
void runtime_ring_claimer(struct runtime *rt, const struct store_item *items, size_t count, int64_t now_ms);

#endif
