/* Configuration: one table drives parsing, environment variables, checks, help and the sample file. */
#ifndef POSTDATE_GATEWAY_CONFIG_CONFIG_H
#define POSTDATE_GATEWAY_CONFIG_CONFIG_H

#include "core/base/err.h"
#include "core/message/accept.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum config_transport { TRANSPORT_AUTO, TRANSPORT_NATIVE, TRANSPORT_PLUGIN, TRANSPORT_TTL, TRANSPORT_TIMER };
enum config_what { HANDOVER_PLAIN, HANDOVER_ALL };
enum config_last_hop { LAST_HOP_GATEWAY, LAST_HOP_RABBITMQ };
/* As topology_intake_ways. */
enum config_queues_by { QUEUES_BY_RANDOM, QUEUES_BY_ROUTING_KEY, QUEUES_BY_MESSAGE_ID, QUEUES_BY_KEY };
enum config_feeder { FEEDER_INTERNAL, FEEDER_CRON };
/* Which audit lines are logged: none, changes of stored messages, also scheduling. */
enum config_log_audit { LOG_AUDIT_OFF, LOG_AUDIT_CHANGES, LOG_AUDIT_ALL };
/* By which the cell of a message is chosen (amqp/topology/topology.h). */
enum config_exchange_by { CELL_BY_KEY, CELL_BY_MESSAGE_ID, CELL_BY_ROUTING_KEY };
enum config_log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Strings are owned by the config and valid until config_free. Read-only after loading, so any thread may
 * read it. */
struct config {
    struct {
        char *url;
    } postgres;
    struct {
        char *url, *prefix;
        int64_t heartbeat_ms;
        char *ca_file, *cert_file, *key_file;
    } amqp;
    struct {
        char *exchange, *queue;
        int64_t queues;
        enum config_queues_by queues_by;
        int64_t prefetch;
        uint64_t max_body;
    } intake;
    struct accept_route *routes; /* strings owned */
    size_t route_count;
    struct {
        char *exchange;
        char **allow;
        size_t allow_count;
        int64_t lead_ms, max_delay_ms;
    } delivery;
    struct {
        enum config_transport transport;
        enum config_what what;
        int64_t min_ahead_ms, window_ms, max_messages, grace_ms;
        enum config_feeder feeder;
        enum config_last_hop last_hop;
    } handover;
    struct {
        int64_t queues;
    } exit;
    struct {
        int64_t attempts, first_ms, max_ms;
    } retry;
    struct {
        int64_t key_memory_ms;
    } keys;
    struct {
        int64_t delivered_ms, cancelled_ms, failed_ms;
    } retention;
    struct {
        char *listen; /* host:port; NULL: off */
        bool tokens, console, insecure_listen;
        int64_t timeout_ms;
    } http;
    struct {
        int64_t late_ms, window_ms;
        char *target; /* "99.9%" */
    } slo;
    struct {
        int64_t number; /* -1: none */
        char *exchange; /* NULL: none */
        enum config_exchange_by exchange_by;
        int64_t weight;
    } cell;
    struct {
        char *file; /* gateway/config/cells.h; NULL: none */
    } cells;
    struct {
        enum config_log_level level;
        enum config_log_audit audit;
        bool json;
        bool core_dumps;
    } log;
    char *source; /* the file it was read from, or NULL */
};

/* Called once per error or warning. */
struct config_report {
    /* text: "file:line: option: error"; kind: ERR_CONFIG, or ERR_PERMISSION for a file that this user may not
     * read */
    void (*mistake)(void *ctx, enum err_kind kind, const char *text);
    void (*warning)(void *ctx, const char *text);
    void (*exposed)(
        void *ctx,
        const char *text); /* a warning that all users can read a password in a file; NULL: as warning */
    void *ctx;
};

/* Loads: path (from -c) else $POSTDATE_CONFIG else /etc/postdate/postdate.conf (may be absent) else defaults;
 * then the environment POSTDATE_<SECTION>_<OPTION> (environ is searched) which wins; secrets (urls) also from
 * …_FILE. Every error is reported through `report` (may be NULL); the first one is also put into e, with its
 * kind. -1 if there was any; then the config is freed. An unknown option is an error; unknown POSTDATE_
 * variables give one warning in all (none for POSTDATE_CONFIG). */
int config_load(struct config *c, const char *path, const struct config_report *report, struct err *e);
void config_free(struct config *c);

/* Every option with its default and one line of explanation, as a valid config file. */
void config_print_sample(FILE *out);
/* Calls fn for each option that is not secret: "section.name" and its value as a user would write it, in the
 * order of the sample. */
void config_each(const struct config *c, void (*fn)(void *ctx, const char *name, const char *value),
                 void *ctx);

/* Is no server's address set, as after an installation? */
bool config_names_no_server(const struct config *c);

/* Which messages RabbitMQ may hold. Only a gateway, which has tested RabbitMQ, knows has_transport; it
 * records the result in the schema (sql/admin/settings.h). */
enum hold_policy config_hold_policy(const struct config *c, bool has_transport);
/* The rules for accept_message, pointing into c. hold: as if the configured transport were available. */
struct accept_rules config_accept_rules(const struct config *c);

/* slo.target as a fraction, 0 to 1. */
double config_slo_target(const struct config *c);
/* As hold_policy_least_ahead_ms. */
int64_t config_least_ahead_ms(const struct config *c);
/* The window for which a transport is declared: one second longer than handover.window, for messages that are
 * handed over at its end. */
int64_t config_declared_window_ms(const struct config *c);

#endif
