#include "gateway/config/config_table.h"

#include "amqp/connection/broker.h"
#include "core/base/bytes.h"
#include "core/base/duration.h"
#include "core/base/names.h"
#include "core/message/envelope.h"
#include "core/message/message.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND INT64_C(1000)
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)
#define KIB INT64_C(1024)
#define MIB (1024 * KIB)

static const char *const transports[] = {"auto", "native", "plugin", "ttl", "timer", NULL};
static const char *const log_levels[] = {"error", "warning", "info", "debug", NULL};
static const char *const log_audits[] = {"off", "changes", "all", NULL};
static const char *const log_formats[] = {"text", "json", NULL};
static const char *const handover_whats[] = {"plain", "all", NULL};
static const char *const feeders[] = {"internal", "cron", NULL};
static const char *const last_hops[] = {"gateway", "broker", NULL};
static const char *const queues_bys[] = {"random", "routing-key", "message-id", "key", NULL};
static const char *const exchange_bys[] = {"key", "message-id", "routing-key", NULL};
static const char *const off_on[] = {"off", "on", NULL};

static int check_postgres_url(const char *value, struct err *e)
{
    struct bytes v = bytes_of_str(value);
    if (bytes_start_with_str(v, "postgresql://") || bytes_start_with_str(v, "postgres://") ||
        strchr(value, '=') != NULL)
        return 0;
    return err_set(e, ERR_CONFIG,
                   "is not a PostgreSQL address (not shown, it may hold a password): allowed are "
                   "postgresql://[user@]host[:port]/database or \"host=… dbname=…\"");
}

static int check_name(const char *value, struct err *e)
{
    size_t len = strlen(value);
    /* The queue's name grows by ".expired" for the queue beside it. */
    if (len > MESSAGE_NAME_MAX - 8)
        return err_set(e, ERR_CONFIG, "is %zu bytes long: allowed are up to %d", len, MESSAGE_NAME_MAX - 8);
    if (!bytes_is_text(bytes_of_str(value)))
        return err_set(e, ERR_CONFIG, "is not valid UTF-8");
    return 0;
}

/* Up to, but not including 100, which would leave no budget to evaluate. */
static int check_percentage(const char *value, struct err *e)
{
    char *end;
    double part = strtod(value, &end);
    if (isdigit((unsigned char)*value) && strcmp(end, "%") == 0 && part > 0 && part < 100)
        return 0;
    return err_set(e, ERR_CONFIG,
                   "\"%s\" is not a percentage: allowed is more than 0%% and less than 100%%, "
                   "such as 99.9%%",
                   value);
}

static int check_listen(const char *value, struct err *e)
{
    const char *colon = strrchr(value, ':');
    char *end = NULL;
    long port = colon != NULL && isdigit((unsigned char)colon[1]) ? strtol(colon + 1, &end, 10) : -1;
    if (strcmp(value, "off") == 0)
        return 0;
    if (colon == value || port < 0 || port > 65535 || *end != '\0')
        return err_set(e, ERR_CONFIG,
                       "\"%s\" is not an address: allowed is host:port such as 127.0.0.1:8480 (port 0: any "
                       "free one), or off",
                       value);
    return 0;
}

#define AT(field) .offset = offsetof(struct config, field)

const struct option option_table[] = {
    {"postgres", "url", OPTION_TEXT, "postgresql:///postdate", .secret = true, .check = check_postgres_url,
     AT(postgres.url), .help = "PostgreSQL: a libpq URL or conninfo string; no transaction-pooling proxy"},

    {"amqp", "url", OPTION_TEXT, "amqp://guest:guest@localhost:5672/%2f", .secret = true,
     .check = broker_url_check, AT(amqp.url),
     .help = "RabbitMQ and vhost; amqps:// for TLS; host1,host2,host3 for the nodes of a cluster"},
    {"amqp", "prefix", OPTION_TEXT, NAMES_PREFIX, .check = names_check_prefix, AT(amqp.prefix),
     .help = "prefix of all names that Postdate declares in RabbitMQ: this name, or this name and a dot; "
             "each Postdate in a vhost needs its own, and a database keeps its prefix"},
    {"amqp", "heartbeat", OPTION_DURATION, "30s", SECOND, HOUR, AT(amqp.heartbeat_ms),
     .help = "a connection silent for twice this (for RabbitMQ, two to three times) is treated as dead"},
    {"amqp", "ca_file", OPTION_TEXT, "", .optional = true, AT(amqp.ca_file),
     .help = "amqps: trusted certificate authorities, PEM; empty: the system's"},
    {"amqp", "cert_file", OPTION_TEXT, "", .optional = true, AT(amqp.cert_file),
     .help = "amqps: client certificate, PEM"},
    {"amqp", "key_file", OPTION_TEXT, "", .optional = true, AT(amqp.key_file),
     .help = "amqps: key of the client certificate, PEM"},

    {"intake", "exchange", OPTION_TEXT, "postdate", .prefixed = true, .check = check_name,
     AT(intake.exchange),
     .help = "applications publish delayed messages to this exchange; default: amqp.prefix"},
    {"intake", "queue", OPTION_TEXT, "postdate.intake", .prefixed = true, .check = check_name,
     AT(intake.queue),
     .help = "the quorum queue bound to intake.exchange, from which gateways consume; default: amqp.prefix, "
             "then .intake"},
    {"intake", "queues", OPTION_INTEGER, "1", 1, 64, AT(intake.queues),
     .help = "number of intake queues that share the published messages: intake.queue and further ones"},
    {"intake", "queues_by", OPTION_CHOICE, "random", .choices = queues_bys, AT(intake.queues_by),
     .help = "how messages are distributed to the intake queues: random; routing-key, message-id or key: "
             "messages with the same value go to the same queue"},
    {"intake", "prefetch", OPTION_INTEGER, "1000", 1, 65535, AT(intake.prefetch),
     .help = "messages that a gateway consumes ahead of their commit"},
    {"intake", "max_body", OPTION_SIZE, "8MiB", KIB, 16 * MIB, AT(intake.max_body),
     .help = "messages with larger bodies are rejected"},

    {"delivery", "exchange", OPTION_TEXT, "postdate.delivery", .check = check_name, AT(delivery.exchange),
     .help = "default delivery exchange; declared as a durable topic exchange if it does not exist; an "
             "existing one may have any type"},
    {"delivery", "allow", OPTION_LIST, "", .optional = true, AT(delivery.allow),
     .count_offset = offsetof(struct config, delivery.allow_count),
     .help = "exchanges to which messages may be delivered, comma-separated; * matches any name, \"\" is the "
             "default exchange, which reaches every queue; not set: delivery.exchange and the exchanges in "
             "[route]"},
    {"delivery", "lead", OPTION_DURATION, "500ms", 50, MINUTE, AT(delivery.lead_ms),
     .help = "how long before its due time a gateway claims a message in the database"},
    {"delivery", "max_delay", OPTION_DURATION, "730d", SECOND, 3650 * DAY, AT(delivery.max_delay_ms),
     .help = "messages with longer delays are rejected"},

    {"handover", "transport", OPTION_CHOICE, "auto", .choices = transports, AT(handover.transport),
     .help = "how RabbitMQ holds messages that are due within handover.window: native, plugin or ttl; auto: "
             "native or plugin if RabbitMQ has it, else ttl; timer: it holds none, the gateways hold all"},
    {"handover", "what", OPTION_CHOICE, "plain", .choices = handover_whats, AT(handover.what),
     .help = "messages that RabbitMQ may hold: plain, AMQP messages without a key; all, also those with a "
             "key and from SQL, HTTP, control queue or command line"},
    {"handover", "min_ahead", OPTION_DURATION, "2s", 0, HOUR, AT(handover.min_ahead_ms),
     .help = "messages due sooner, or within twice delivery.lead, are not handed over to RabbitMQ"},
    {"handover", "window", OPTION_DURATION, "26h", SECOND, 40 * DAY, AT(handover.window_ms),
     .help = "how far ahead messages are handed over to RabbitMQ"},
    {"handover", "max_messages", OPTION_INTEGER, "200000", 1, 100000000, AT(handover.max_messages),
     .help = "RabbitMQ holds at most about this many messages"},
    {"handover", "feeder", OPTION_CHOICE, "internal", .choices = feeders, AT(handover.feeder),
     .help = "which program moves the end of the window (messages due before it are handed over): internal, "
             "the gateway; cron, `postdate feed`"},
    {"handover", "last_hop", OPTION_CHOICE, "gateway", .choices = last_hops, AT(handover.last_hop),
     .help = "how messages that RabbitMQ held are delivered: gateway, by a gateway with a confirm; broker, "
             "by RabbitMQ itself (limits: docs/last-hop.md)"},
    {"handover", "grace", OPTION_DURATION, "10s", SECOND, HOUR, AT(handover.grace_ms),
     .help = "a message that RabbitMQ has not released this long after its due time is treated as lost"},

    {"exit", "queues", OPTION_INTEGER, "1", 1, EXIT_QUEUES_MAX, AT(exit.queues),
     .help = "number of exit queues, from which gateways consume messages that RabbitMQ held; more than one "
             "needs rabbitmq_random_exchange"},

    {"retry", "attempts", OPTION_INTEGER, "20", 1, 1000000, AT(retry.attempts),
     .help = "an unroutable message becomes failed after this many attempts"},
    {"retry", "first", OPTION_DURATION, "1s", 1, DAY, AT(retry.first_ms),
     .help = "delay before the second attempt"},
    {"retry", "max", OPTION_DURATION, "10m", 1, 30 * DAY, AT(retry.max_ms),
     .help = "the delay doubles with each attempt, up to this"},

    {"keys", "key_memory", OPTION_DURATION, "1h", 0, 365 * DAY, AT(keys.key_memory_ms),
     .help = "how long a key stays taken after its message was delivered"},

    {"retention", "delivered", OPTION_DURATION, "7d", MINUTE, 3650 * DAY, AT(retention.delivered_ms),
     .help = "how long delivered messages can be looked up"},
    {"retention", "cancelled", OPTION_DURATION, "7d", MINUTE, 3650 * DAY, AT(retention.cancelled_ms),
     .help =
         "how long cancelled and superseded messages can be looked up; cancelling erases the body at once"},
    {"retention", "failed", OPTION_DURATION, "30d", MINUTE, 3650 * DAY, AT(retention.failed_ms),
     .help = "how long failed and expired messages are kept; failed ones can be retried until then"},

    {"http", "listen", OPTION_TEXT, "127.0.0.1:8480", .check = check_listen, AT(http.listen),
     .help = "address of the HTTP interface, host:port; port 0: any free one; off: none"},
    {"http", "tokens", OPTION_FLAG, "off", .choices = off_on, AT(http.tokens),
     .help = "on: HTTP calls below /v1 and control requests need a token"},
    {"http", "console", OPTION_FLAG, "on", .choices = off_on, AT(http.console),
     .help = "on: the same address serves the console, a web page, at /"},
    {"http", "insecure_listen", OPTION_FLAG, "off", .choices = off_on, AT(http.insecure_listen),
     .help = "on: allow tokens=off on an address that other machines can reach"},
    {"http", "timeout", OPTION_DURATION, "30s", SECOND, HOUR, AT(http.timeout_ms),
     .help = "time limit for receiving a request, and for answering it"},

    {"slo", "late", OPTION_DURATION, "1s", 1, DAY, AT(slo.late_ms),
     .help = "the objective: a delivery is late if it is confirmed more than this after its due time"},
    {"slo", "target", OPTION_TEXT, "99.9%", .check = check_percentage, AT(slo.target),
     .help = "the part of deliveries that must not be late"},
    {"slo", "window", OPTION_DURATION, "30d", HOUR, 366 * DAY, AT(slo.window_ms),
     .help = "the period over which the target is evaluated"},

    {"cell", "number", OPTION_INTEGER, "", 0, 255, .optional = true, AT(cell.number),
     .help = "number of this cell among several Postdates, contained in its message ids; a database keeps "
             "its first number"},
    {"cell", "exchange", OPTION_TEXT, "", .optional = true, .check = check_name, AT(cell.exchange),
     .help = "exchange that distributes messages to the cells of one vhost; declared as x-consistent-hash, "
             "and the intake exchange is bound to it"},
    {"cell", "exchange_by", OPTION_CHOICE, "message-id", .choices = exchange_bys, AT(cell.exchange_by),
     .help = "how cell.exchange selects a cell: by key (header x-postdate-key), message-id (property) or "
             "routing-key; the same for all cells"},
    {"cell", "weight", OPTION_INTEGER, "1", 0, 100, AT(cell.weight),
     .help = "share of this cell, relative to the others' weights; 0: no new messages, stored ones are "
             "delivered"},

    {"cells", "file", OPTION_TEXT, "", .optional = true, AT(cells.file),
     .help = "file that lists all cells: requests for messages that this cell does not have are sent to the "
             "others"},

    {"log", "level", OPTION_CHOICE, "info", .choices = log_levels, AT(log.level),
     .help = "least severity to log"},
    {"log", "format", OPTION_FLAG, "text", .choices = log_formats, AT(log.json),
     .help = "json: one object per line"},
    {"log", "audit", OPTION_CHOICE, "changes", .choices = log_audits, AT(log.audit),
     .help = "audit log: user, origin and action of each change (changes); also of newly scheduled messages "
             "(all); none (off)"},
    {"log", "core_dumps", OPTION_FLAG, "off", .choices = off_on, AT(log.core_dumps),
     .help =
         "on: a crash may leave a core file, and debuggers of the same user may attach; both show passwords"},
};
const size_t option_count = sizeof option_table / sizeof option_table[0];
_Static_assert(sizeof option_table / sizeof option_table[0] <= OPTION_COUNT_MAX, "raise OPTION_COUNT_MAX");
_Static_assert(sizeof(enum config_transport) == sizeof(int) && sizeof(enum config_log_level) == sizeof(int),
               "OPTION_CHOICE stores an int");
