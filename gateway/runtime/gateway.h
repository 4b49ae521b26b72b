/* What the daemon's threads share. Each member says how it is guarded.
 *
 *   intake ──▶ Postgres ──▶ claimer ──▶ fast queue ───▶ publisher ──▶ results ───▶ settler ──▶ Postgres
 *                              │            ▲ │                          ▲
 *                              │            │ ▼                          │
 *                              │        serial queue ─▶ publisher ───────┤
 *                              │        patient queue ▶ publisher ───────┘
 *   exit queue ──▶ relay ──▶ fast queue
 *   lease keeper: instance, heartbeat, take-over. janitor: partitions. main: signals, start, watchdog, stop.
 */
#ifndef POSTDATE_GATEWAY_RUNTIME_GATEWAY_H
#define POSTDATE_GATEWAY_RUNTIME_GATEWAY_H

#include "amqp/connection/broker_hosts.h"
#include "amqp/topology/owner.h"
#include "amqp/topology/transport.h"
#include "core/base/clock.h"
#include "gateway/config/config.h"
#include "gateway/instance/lease.h"
#include "gateway/pipeline/due_queue.h"
#include "gateway/pipeline/inflight.h"
#include "gateway/pipeline/result_queue.h"
#include "gateway/publish/destination_cache.h"
#include "gateway/publish/exchange_cache.h"
#include "gateway/relay/relay.h"
#include "gateway/runtime/metrics.h"
#include "gateway/runtime/server_status.h"
#include "sql/pipeline/locked.h"
#include <pthread.h>
#include <stdatomic.h>

#define INFLIGHT_BYTES_MAX (24u * 1024 * 1024)
#define INFLIGHT_COUNT_MAX 50000

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

/* Does a policy of the broker's change its waiting (prober.c)? */
enum policy_state { POLICY_UNKNOWN, POLICY_NONE, POLICY_IN_THE_WAY };

struct gateway {
    const struct config *config;  /* read-only while the threads run */
    char name[64];                /* host:pid */
    char identity[OWNER_ID_SIZE]; /* of the schema; set before the threads start */
    bool owner_refused;    /* said that the vhost can't remember whose it is; startup's, then the intake's */
    atomic_int stop_stage; /* enum stop_stage, only ever rises */
    atomic_int up;         /* enum up_bit of threads that have done their first connect */
    const struct transport *_Atomic transport; /* how the broker waits; NULL: the gateway holds everything.
                                          Set before the threads start, but HTTP's look at it earlier */
    int up_wanted;                             /* enum up_bit of the threads that there are */
    atomic_int policy;                         /* enum policy_state; handing over needs POLICY_NONE */
    atomic_bool handing;                       /* the hand-over publisher is connected and not blocked */
    atomic_int delay_topology_epoch; /* counts the connections after which something of it may be missing */
    atomic_bool rescued;             /* the broker lost something: perhaps a part of the delay topology */
    atomic_bool publishing;          /* the fast queue is connected and not blocked: claiming makes sense */
    pthread_mutex_t clock_lock;
    struct db_clock clock; /* guarded by clock_lock, as … */
    int64_t suspended_ms;  /* … how long this machine had been suspended at the last sample, ever */
    pthread_mutex_t locked_lock;
    struct locked_days locked; /* guarded by locked_lock: days that the claimer goes around (locks.h) */
    struct lease lease;
    atomic_bool instance_unclear; /* a settle or a claim may or may not have happened: the lease keeper ends
                                     the instance */
    atomic_bool forgotten; /* a connection to the database died, perhaps with it: the settler says again what
                              it said last, and until it has the lease keeper lets go of no claims */
    struct inflight_budget budget;
    atomic_uint
        intake_rests; /* how often the intake had stored all that had come, and waited in vain for more */
    atomic_size_t control_requests; /* requests of the control queue that are being done */
    struct due_queue fast, serial, patient, handover;
    struct result_queue results;
    struct relay relay;
    struct exchange_cache exchanges;
    struct destination_cache destinations;
    struct notifier handover_feeder_notifier, control_notifier, prober_notifier;
    struct notifier claimer_notifier; /* rung by intake when something is due within the lead */
    struct notifier intake_notifier;
    struct notifier lease_keeper_notifier, janitor_notifier;
    struct server_status postgres, rabbitmq;
    struct broker_hosts *hosts; /* of amqp.url; guards itself */
    struct metrics metrics;
    struct tokens *tokens;    /* tokens.h; NULL: http.tokens is off. Set before the threads start */
    atomic_bool stored_ready; /* the schema fits and its partitions are there: messages can be stored */
};

/* main of each thread; arg is the struct gateway (publisher: its struct publisher). */
void *intake_thread(void *gateway);
void *claimer_thread(void *gateway);
void *settler_thread(void *gateway);
void *lease_keeper_thread(void *gateway);
void *janitor_thread(void *gateway);
void *handover_feeder_thread(void *gateway);
void *prober_thread(void *gateway);

bool gateway_stopping(struct gateway *g, enum stop_stage stage); /* has the stop come as far as that stage? */
void gateway_set_up(struct gateway *g, enum up_bit bit);
/* Estimated database time, never ahead of it (core/base/clock.h); false before the first sample. Rounded down
 * to ms.
 */
bool gateway_now_ms(struct gateway *g, int64_t *out_ms);
/* Takes what the database's clock said. Where it was set forward since the last answer, or this machine stood
 * still, the lease has less left. */
enum clock_answer {
    CLOCK_ASKED,      /* for its own sake, so it came as fast as it could */
    CLOCK_CAME_ALONG, /* with a statement's result */
};
void gateway_hear_clock(struct gateway *g, const struct db_clock_answer *a, enum clock_answer kind);
/* The same, as late as it may be: with the time that this machine was suspended since the last sample.
 * INT64_MAX before the first sample. */
int64_t gateway_latest_ms(struct gateway *g);
/* What the broker holds and was due before this (database ms) is lost; 0: perhaps it is only late. */
int64_t gateway_rescue_before_ms(struct gateway *g);
/* Who waits: "timer", "plugin", "ttl". */
const char *gateway_transport_name(const struct gateway *g);
/* How the transport is used. */
struct transport_options gateway_transport_options(struct gateway *g);
/* Rows may be owned by this instance that it does not have in memory, where nobody would publish them: the
 * lease keeper ends it and books a new one, so that all of its rows wait again. */
void gateway_end_instance(struct gateway *g);
/* Ends a message's time in memory: hands it to the settler. A relayed one that is to be published again
 * stays. */
void gateway_settle(struct gateway *g, struct inflight *h, enum settle_kind outcome);
/* The same for a relayed one that has to go back to the database now. */
void gateway_settle_now(struct gateway *g, struct inflight *h, enum settle_kind outcome);
/* The wait before the next try of a message that was tried `attempts` times. */
int64_t gateway_retry_ms(const struct gateway *g, int attempts);

#endif
