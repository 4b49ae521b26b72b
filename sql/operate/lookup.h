/* Reading messages: show, list, status. */
#ifndef POSTDATE_SQL_OPERATE_LOOKUP_H
#define POSTDATE_SQL_OPERATE_LOOKUP_H

#include "core/base/arena.h"
#include "core/base/err.h"
#include "core/message/message.h"
#include "sql/admin/health.h"
#include "sql/connection/pg.h"
#include "sql/pipeline/instance.h"
#include "sql/pipeline/locked.h"
#include <stdbool.h>
#include <stdint.h>

/* The rate (sql/schema/001_62_rate.sql) for whose slot a message waits. */
struct message_rate {
    struct bytes exchange, routing_key, rate; /* rate: "200/s" */
    bool paused;
    int64_t slot_ms; /* its approximate slot; -1: the rate is paused */
};

#define MESSAGE_STATE_NAME_SIZE 64 /* of a label in PostgreSQL, with the NUL */

/* A row as shown to users; bytes are copied into the caller's arena. */
struct message_record {
    struct message message;
    enum message_state state;
    char other_state[MESSAGE_STATE_NAME_SIZE]; /* the name of MESSAGE_STATE_OTHER */
    int64_t next_at_ms, created_ms;
    int64_t settled_ms; /* -1: not settled */
    int attempts;
    struct bytes error; /* len 0: none */
    /* Of a message scheduled by SQL with headers or properties: {"headers":…,"properties":…};
     * message.properties is empty then (gateway/json/json_message.h encodes it). len 0: none. */
    struct bytes properties_json;
    struct bytes former_ids; /* operate_show only: earlier ids of the message, as text, separated by commas;
                                len 0: none */
    bool waits_for_slot;     /* operate_show only, as the next: */
    struct message_rate rate;
};

/* An attempt failed, and another follows: the gateway holds the message, even if RabbitMQ held it before. */
static inline bool lookup_is_retrying(const struct message_record *r)
{
    return r->error.len > 0 && r->state != MESSAGE_HANDED && r->settled_ms < 0;
}

/* For people and programs. */
static inline const char *lookup_state_name(const struct message_record *r)
{
    return r->state == MESSAGE_STATE_OTHER ? r->other_state : message_state_name(r->state);
}

/* By id: reads one partition. ERR_NOT_FOUND when there is none. */
int lookup_by_id(struct pg *c, struct message_id id, struct arena *a, struct message_record *out,
                 struct err *e);

/* A filter's state: scheduled or claimed, after a failed attempt. */
#define LOOKUP_RETRYING "retrying"
/* A filter's state: scheduled, claimed or handed. */
#define LOOKUP_WAITING "waiting"
struct lookup_filter {
    bool has_state;
    enum message_state state;
    bool retrying; /* only messages that wait for another attempt */
    bool waiting;  /* only messages that are not settled */
    bool newest;   /* of a list: the latest due time first; after_id is then an upper bound */
    int64_t due_after_ms, due_before_ms; /* [after, before); 0 and TIMESTAMP_MAX_MS: open */
    struct bytes exchange, routing_key;  /* data NULL: any */
    bool globs;                          /* '*' in routing_key matches any run of characters */
    struct bytes key;          /* data NULL: any; else the messages with this key now, one per exchange */
    const struct bytes *scope; /* delivery exchanges to look in; NULL: all */
    size_t scope_count;
};

/* Calls fn for each match in id order, which is due order, starting after after_id when has_after; at most
 * limit rows. The arena is reset between rows: copy what must stay. fn returns false to stop. Reads one
 * partition at a time, so that a listing locks few of them. If few of many messages match, it ends after
 * about budget_ms; the page is then at the last message that was checked, with given_up set. */
struct lookup_page {
    bool has_after;
    int64_t after_due_ms;
    struct message_id after_id;
    int64_t limit;
    int64_t budget_ms; /* 0: unlimited */
    bool given_up;     /* out */
};
int lookup_list(struct pg *c, const struct lookup_filter *f, struct lookup_page *page,
                bool (*fn)(void *ctx, const struct message_record *r), void *ctx, struct err *e);

/* Bounded counts: none reads more than STATUS_COUNT_MAX rows per state. */
#define STATUS_INSTANCES_MAX 16 /* of more, those that live, and the newest */
#define STATUS_VERSION_SIZE 64
struct status_instance {
    int64_t id;
    char name[INSTANCE_NAME_SIZE];     /* "host:pid" */
    char transport[16];                /* timer, native, plugin, ttl; "": not recorded */
    char version[STATUS_VERSION_SIZE]; /* the program's, cut; "": not recorded */
    int64_t started_ms, heartbeat_ms;  /* started: the program */
    bool broker_away;                  /* RabbitMQ was unavailable at its last heartbeat */
    bool alive;                        /* its session lock is held and its lease has not expired */
};
struct status_lateness {
    int64_t count;                  /* 0: no deliveries, and the rest is 0 */
    int64_t p50_ms, p90_ms, p99_ms; /* percentiles */
};
/* The last time that the database was found to have lost commits, by a restore or fail-over
 * (001_19_history.sql); -1 each: never. */
struct status_back {
    int64_t found_ms;
    int64_t from_ms, to_ms; /* commits in between are lost */
    int64_t look_until_ms;  /* all messages that RabbitMQ held then are due before this */
    int64_t due; /* messages due in that time and not delivered according to the database, as in struct
                    history_report */
};
/* Work that is held back as configured, and is not a problem by itself. Names: the first in sort order, cut.
 */
struct status_held {
    int64_t paused, behind,
        rates; /* schedules that are paused; schedules that skip occurrences, because the previous one is
                  unfinished; rates that are paused. At most 1000 of each are counted */
    int64_t left_out; /* skipped occurrences of those schedules, up to 100 each */
    int64_t waiting;  /* messages that wait for a paused rate, up to 10,000 each */
    char first_paused[128], first_behind[128], first_rate[128];
};
struct status_report {
    int schema_version;
    char broker[128], vhost[128], prefix[64]; /* "" until a gateway has recorded them */
    int64_t now_ms;                           /* database clock */
    int64_t count[MESSAGE_STATE_COUNT];       /* by enum message_state */
    bool capped[MESSAGE_STATE_COUNT];         /* count stopped at STATUS_COUNT_MAX */
    int64_t next_due_ms;                      /* -1: nothing scheduled */
    int64_t overdue; /* live rows whose next_at is more than a second ago, and which no live gateway has
                        claimed (capped, too) */
    int64_t oldest_overdue_ms; /* -1 */
    int64_t retrying;          /* live rows with a failed attempt (capped, too) */
    struct status_lateness lateness;
    struct locked_days locked; /* days that other sessions have locked: not counted */
    struct status_instance instances[STATUS_INSTANCES_MAX];
    int instance_count;
    int64_t alive; /* live gateways, also those for which instances has no room */
    struct status_back back;
    struct status_held held;
    bool disk_full; /* PostgreSQL's disk; set by the command line only (health_space) */
};
int lookup_status(struct pg *c, struct status_report *out, struct err *e);
/* Problems in s, in the words of the caller: "status" (only the detail has a text), "overview" (status is a
 * severity), "doctor" (which also reports what is right). One query for all: sql/query/status_findings.sql.
 */
int status_find(struct pg *c, const char *who, const struct status_report *s, health_each *each, void *ctx,
                struct err *e);
/* The number of live gateways on a host (NULL: all hosts), without counting messages. -1: error. */
int lookup_alive(struct pg *c, const char *host, struct err *e);

#endif
