/* What every thread may use: the configuration, how far start and stop have come, the database's clock, what
 * is known of the servers, and what the ways in tell the stages. What only the stages share is in
 * gateway/pipeline (pipeline.h, lease.h, handover.h). Each member says how it is guarded. */
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

/* Stopping goes in stages, so that what is in flight finds its way into the database. */
enum stop_stage {
    STOP_NOT,
    STOP_INTAKE,     /* accept and claim nothing more */
    STOP_PUBLISHERS, /* put back what was not begun, wait for confirms */
    STOP_SETTLER,
    STOP_RELAY, /* acknowledge what is settled */
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
    UP_PROBER = 1024,
};

struct store_item;

struct runtime {
    /* Set before the threads start. */
    const struct config *config;
    const struct cells *cells;     /* NULL: cells.file names none */
    char name[INSTANCE_NAME_SIZE]; /* host:pid */
    char identity[OWNER_ID_SIZE];  /* of the schema */
    int exit_queues, exit_bound;   /* of transport_options, at the start */
    int up_wanted;                 /* enum up_bit of the threads that there are */
    /* One thread's at a time: startup's, then the intake's. */
    bool owner_refused; /* said that the vhost can't remember whose it is */
    bool cell_refused;  /* said that the feed of this cell can't be made sure of */

    /* Atomic: any thread. */
    atomic_int stop_stage;    /* enum stop_stage, only ever rises */
    atomic_int code;          /* what the program ends with, where it ends by itself */
    atomic_int up;            /* enum up_bit of threads that have done their first connect */
    atomic_int cell_number;   /* of the database, as settings_take_cell says; -1: none, or not known yet */
    atomic_bool stored_ready; /* the schema fits and its partitions are there: messages can be stored */
    atomic_bool publishing;   /* the fast queue is connected and not blocked: claiming makes sense */
    const struct transport *_Atomic transport; /* how the broker waits; NULL: the gateway holds everything.
                                          Set before the threads start, but HTTP's look at it earlier */
    atomic_uint intake_rests; /* how often the intake had stored all that came, and waited in vain for more */
    atomic_int intake_queues; /* how many there are, as the last declaration found; 0: there was none yet */
    atomic_bool said_queues;  /* that others have configured another number */
    atomic_size_t control_requests; /* requests of the control queue that are being done */

    pthread_mutex_t clock_lock;
    struct db_clock clock; /* guarded by clock_lock, as … */
    int64_t suspended_ms;  /* … how long this machine had been suspended at the last sample, ever */
    atomic_int_fast64_t clock_back_ms; /* how far the database's clock was set back, in all */
    pthread_mutex_t locked_lock;
    struct locked_days locked; /* guarded by locked_lock: days that the claimer goes around (locks.h) */

    /* Guard themselves. */
    struct server_status postgres, rabbitmq;
    struct history history;
    struct broker_hosts *hosts; /* of amqp.url */
    struct metrics metrics;
    /* Rung by all ways in, when something is due within the lead, or stored. */
    struct notifier claimer_notifier, handover_feeder_notifier;
};

/* The notifiers are the supervisor's to open. */
int runtime_open(struct runtime *rt, const struct config *c, struct err *e);

/* Has the stop come as far as that stage? */
bool runtime_stopping(struct runtime *rt, enum stop_stage stage);
void runtime_set_up(struct runtime *rt, enum up_bit bit);
/* Who waits: "timer", "native", "plugin", "ttl". */
const char *runtime_transport_name(const struct runtime *rt);

/* Estimated database time, never ahead of it (core/base/clock.h); false before the first sample. Rounded down
 * to ms.
 */
bool runtime_now_ms(struct runtime *rt, int64_t *out_ms);
/* The same in us, after the first sample. */
int64_t runtime_now_us(struct runtime *rt);
/* The same, as late as it may be: with the time that this machine was suspended since the last sample.
 * INT64_MAX before the first sample. */
int64_t runtime_latest_ms(struct runtime *rt);
/* From now until that database time, after the first sample. */
int64_t runtime_ns_until(struct runtime *rt, int64_t at_ms);
/* Takes what the database's clock said; lease_hear_clock is who calls it. How far it was set forward since
 * the last answer, or this machine stood still; < 0: it was set back. */
enum clock_answer {
    CLOCK_ASKED,      /* for its own sake, so it came as fast as it could */
    CLOCK_CAME_ALONG, /* with a statement's result */
};
int64_t runtime_hear_clock(struct runtime *rt, const struct db_clock_answer *a, enum clock_answer kind);

/* The claimer looks twice a lead: rings it when one of these was stored and is due within a lead from now_ms.
 */
void runtime_ring_claimer(struct runtime *rt, const struct store_item *items, size_t count, int64_t now_ms);

#endif
