/* `postdate doctor`: a list of checks, each of which reports findings. A check never stops the others, never
 * waits for ever, and changes nothing on the servers. */
#ifndef POSTDATE_GATEWAY_CLI_DOCTOR_DOCTOR_H
#define POSTDATE_GATEWAY_CLI_DOCTOR_DOCTOR_H

#include "amqp/inspect/inspect.h"
#include "core/base/clock.h"
#include "gateway/cli/cli.h"
#include "sql/admin/health.h"
#include "sql/operate/lookup.h"
#include <jansson.h>

#define DOCTOR_ANSWER_MS 10000 /* the longest silence of a server */

/* Gateways judge by the database's clock alone, so nothing is early or late by these. What a machine's own
 * clock spoils is every absolute time that is computed on it (due_at, x-opt-delivery-time): a second is what
 * people notice, and no machine with time synchronisation is ever half a minute off. */
#define DOCTOR_SKEW_WARN_MS 1000
#define DOCTOR_SKEW_FAIL_MS 30000

enum finding { FINDING_OK, FINDING_WARN, FINDING_FAIL, FINDING_SKIP };

struct doctor {
    struct cli *cli;
    const struct config *config; /* NULL: it was not read, or has mistakes */

    struct pg *pg; /* NULL: not connected, or not to be relied on; then why */
    char pg_why[160];
    bool schema_current;
    bool has_status;
    struct status_report status;
    bool has_clock;
    int64_t clock_ahead_ms; /* of this machine, before the database's */

    struct broker *broker; /* NULL: not connected; then why */
    char broker_why[160];
    struct inspect_target target;
    bool declared;  /* all that a gateway declares for its intake is there */
    int has_plugin; /* 1, 0, -1 not known */
    bool broker_clock_known;

    const char *rabbitmqctl; /* --rabbitmqctl, or NULL */
    const char *management;  /* --management, or NULL */

    bool json;     /* --json */
    json_t *array; /* then, else NULL */
    int failed;
};

/* Reports one finding: `check` is a name such as "database.schema" that scripts may rely on. In fmt, what
 * stands behind REMEDY says what to do about it, unless it comes to nothing. */
#define REMEDY "\v"
void doctor_report(struct doctor *d, enum finding status, const char *check, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
#define doctor_ok(d, ...) doctor_report(d, FINDING_OK, __VA_ARGS__)
#define doctor_warn(d, ...) doctor_report(d, FINDING_WARN, __VA_ARGS__)
#define doctor_fail(d, ...) doctor_report(d, FINDING_FAIL, __VA_ARGS__)
#define doctor_skip(d, ...) doctor_report(d, FINDING_SKIP, __VA_ARGS__)
/* Of "ok", "warn", "fail" and "skip", as PostgreSQL and RabbitMQ begin findings of their own. */
enum finding doctor_status(const char *word);
/* A check that could not be done because of an error: `skip` when the server was only busy, else `FAIL`. */
void doctor_error(struct doctor *d, const char *check, const struct err *e);

/* What the database finds about one subject, as findings. */
void doctor_ask(struct doctor *d, const char *check, enum health_subject subject);
void doctor_finding(void *doctor, const struct health_finding *f);
/* How bad it is when two clocks are off by that, and what to do then. */
enum finding doctor_judge_skew(int64_t off_ms, const char **remedy);

/* How to connect as the gateway does; points into the configuration. */
struct broker_options doctor_broker_options(const struct doctor *d);
/* The broker's clock was broker_ms at some moment between from_ms and to_ms of this machine's: compares it
 * with the database's, which is known. */
void doctor_report_broker_clock(struct doctor *d, int64_t broker_ms, int64_t from_ms, int64_t to_ms);

/* The checks. Those of one group run in this order. */
void doctor_check_database(struct doctor *d); /* connects */
void doctor_check_schema(struct doctor *d);
void doctor_check_locks(struct doctor *d);
void doctor_check_notify(struct doctor *d);
void doctor_check_space(struct doctor *d);
void doctor_check_clock(struct doctor *d);
void doctor_check_messages(struct doctor *d);
void doctor_check_retrying(struct doctor *d);

void doctor_check_broker(struct doctor *d); /* connects */
void doctor_check_owner(struct doctor *d);
void doctor_check_permissions(struct doctor *d);
void doctor_check_topology(struct doctor *d);
void doctor_check_delays(struct doctor *d); /* RabbitMQ's own, in front of the intake */
void doctor_check_queues(struct doctor *d);
void doctor_check_shards(struct doctor *d); /* the intake queues, where there are several */
void doctor_check_echo(struct doctor *d);
void doctor_check_policies(struct doctor *d);

void doctor_check_transport(struct doctor *d);
void doctor_check_handed(struct doctor *d);
void doctor_check_last_hop(struct doctor *d);

void doctor_check_rabbitmqctl(struct doctor *d); /* all that AMQP cannot show */

#endif
