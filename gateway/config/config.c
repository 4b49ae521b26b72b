/* Loading: defaults, then the file, then the environment. Each source reports every mistake it has. */
#include "gateway/config/config.h"

#include "core/base/duration.h"
#include "core/base/names.h"
#include "gateway/config/config_report.h"
#include "gateway/config/config_table.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_PATH "/etc/postdate/postdate.conf"
/* A header frame holds 128 KiB less its own few bytes by default; the gateway adds some headers when it
 * publishes. */
#define MAX_PROPERTIES ((size_t)120 * 1024)

/* Only this machine can reach these. */
static bool is_loopback(const char *listen)
{
    char host[64];
    struct in_addr v4;
    size_t len = (size_t)(strrchr(listen, ':') - listen);
    if (len >= sizeof host)
        return false;
    memcpy(host, listen, len);
    host[len] = '\0';
    return strcmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0 ||
           (inet_pton(AF_INET, host, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127);
}

/* What nobody has set is named by the prefix. */
static void name_intake(struct config_loader *l)
{
    struct names n;
    struct config *c = l->config;
    names_make(&n, c->amqp.prefix);
    if (c->intake.exchange == NULL)
        c->intake.exchange = strdup(n.prefix);
    if (c->intake.queue == NULL)
        c->intake.queue = strdup(n.intake);
    if (c->intake.exchange == NULL || c->intake.queue == NULL)
        config_mistake(l, "default", 0, "out of memory");
}

/* Where messages may go that nobody has said anything about: where they would go if they named nothing. */
static void allow_targets(struct config_loader *l)
{
    struct config *c = l->config;
    size_t count = c->route_count + 1;
    if (c->delivery.allow_count > 0)
        return;
    c->delivery.allow = calloc(count, sizeof *c->delivery.allow);
    for (size_t i = 0; c->delivery.allow != NULL && i < count; i++) {
        const char *name = i == 0 ? c->delivery.exchange : c->routes[i - 1].delivery_exchange;
        if ((c->delivery.allow[i] = strdup(name)) == NULL)
            break;
        c->delivery.allow_count++;
    }
    if (c->delivery.allow_count < count)
        config_mistake(l, "default", 0, "out of memory");
}

static void check_route_delay(struct config_loader *l, const char *where, const struct accept_route *r)
{
    char delay[40], most[40];
    if (r->delay_ms > l->config->delivery.max_delay_ms)
        config_mistake(l, where, 0, "route.%s: the delay of %s is longer than delivery.max_delay (%s)",
                       r->intake_exchange, duration_format(r->delay_ms, delay, sizeof delay),
                       duration_format(l->config->delivery.max_delay_ms, most, sizeof most));
}

static void check_together(struct config_loader *l)
{
    const struct config *c = l->config;
    const char *where = c->source != NULL ? c->source : "configuration";
    if (c->retry.first_ms > c->retry.max_ms)
        config_mistake(l, where, 0, "retry.first (%lld ms) is longer than retry.max (%lld ms)",
                       (long long)c->retry.first_ms, (long long)c->retry.max_ms);
    if ((c->amqp.cert_file == NULL) != (c->amqp.key_file == NULL))
        config_mistake(l, where, 0, "amqp.cert_file and amqp.key_file belong together: set both or none");
    if (c->intake.exchange != NULL && c->delivery.exchange != NULL &&
        strcmp(c->intake.exchange, c->delivery.exchange) == 0)
        config_mistake(l, where, 0,
                       "intake.exchange and delivery.exchange are both \"%s\": messages would go in circles",
                       c->intake.exchange);
    if (c->http.listen != NULL && strcmp(c->http.listen, "off") != 0 && !c->http.tokens &&
        !c->http.insecure_listen && !is_loopback(c->http.listen))
        config_mistake(
            l, where, 0,
            "http.listen: others can reach \"%s\", and http.tokens is off: anybody could schedule and "
            "cancel (allowed: an address of 127.0.0.1 or [::1], tokens=on, or insecure_listen=on)",
            c->http.listen);
    if (c->cell.exchange != NULL && (strcmp(c->cell.exchange, c->intake.exchange) == 0 ||
                                     strcmp(c->cell.exchange, c->delivery.exchange) == 0))
        config_mistake(
            l, where, 0,
            "cell.exchange is \"%s\", as intake.exchange or delivery.exchange is: messages would go "
            "in circles",
            c->cell.exchange);
    for (size_t i = 0; i < c->route_count; i++) {
        const struct accept_route *r = &c->routes[i];
        if (strcmp(r->intake_exchange, c->intake.exchange) == 0 ||
            strcmp(r->intake_exchange, c->delivery.exchange) == 0)
            config_mistake(l, where, 0,
                           "route.%s: this exchange is already intake.exchange or delivery.exchange",
                           r->intake_exchange);
        if (strcmp(r->intake_exchange, r->delivery_exchange) == 0)
            config_mistake(l, where, 0, "route.%s: leads to itself: messages would go in circles",
                           r->intake_exchange);
        check_route_delay(l, where, r);
    }
}

int config_load(struct config *c, const char *path, const struct config_report *report, struct err *e)
{
    struct err ignored = {0};
    struct config_loader l = {.config = c, .report = report, .e = e != NULL ? e : &ignored};
    memset(c, 0, sizeof *c);
    err_clear(l.e);
    for (size_t i = 0; i < option_count; i++) {
        struct err oe;
        if (!option_table[i].prefixed && option_set(&option_table[i], c, option_table[i].initial, &oe) != 0)
            config_mistake(&l, "default", 0, "%s.%s: %s", option_table[i].section, option_table[i].name,
                           oe.text);
    }

    const char *from_env = getenv("POSTDATE_CONFIG");
    bool must_exist = path != NULL || (from_env != NULL && *from_env != '\0');
    if (path == NULL)
        path = must_exist ? from_env : DEFAULT_PATH;
    config_load_file(&l, path, must_exist);
    config_load_environment(&l);
    if (l.mistakes == 0)
        name_intake(&l);
    if (l.mistakes == 0)
        allow_targets(&l);
    if (l.mistakes == 0)
        check_together(&l);
    if (l.mistakes > 0) {
        config_free(c);
        return -1;
    }
    return 0;
}

void config_free(struct config *c)
{
    for (size_t i = 0; i < option_count; i++)
        option_clear(&option_table[i], c);
    config_clear_routes(c);
    free(c->source);
    c->source = NULL;
}

void config_each(const struct config *c, void (*fn)(void *ctx, const char *name, const char *value),
                 void *ctx)
{
    char name[100], value[1000];
    for (const struct option *o = option_table; o < option_table + option_count; o++) {
        if (o->secret)
            continue;
        snprintf(name, sizeof name, "%s.%s", o->section, o->name);
        option_format(o, c, value, sizeof value);
        fn(ctx, name, value);
    }
}

void config_print_sample(FILE *out)
{
    char env[OPTION_ENV_SIZE];
    const char *section = "";
    fputs("# Postdate configuration. Every option is also an environment variable, which wins: "
          "amqp.heartbeat is\n"
          "# POSTDATE_AMQP_HEARTBEAT. Addresses with passwords can come from files: "
          "POSTDATE_POSTGRES_URL_FILE,\n"
          "# POSTDATE_AMQP_URL_FILE. What follows are the defaults.\n",
          out);
    for (size_t i = 0; i < option_count; i++) {
        const struct option *o = &option_table[i];
        if (strcmp(section, o->section) != 0) {
            section = o->section;
            fprintf(out, "\n[%s]\n", section);
        }
        fprintf(out, "# %s (%s)\n", o->help, option_env_name(o, env));
        fprintf(out, "%s%s =%s%s\n", *o->initial == '\0' || o->prefixed ? "#" : "", o->name,
                *o->initial == '\0' ? "" : " ", o->initial);
    }
    fputs("\n# Further intake exchanges, each with the delivery exchange that it stands in front of, and "
          "with the\n"
          "# delay of messages that ask for none (POSTDATE_ROUTE=\"orders.delayed=orders,…\").\n"
          "[route]\n#orders.delayed = orders\n#orders.later = orders, delay=5s\n",
          out);
}

bool config_names_no_server(const struct config *c)
{
    return strcmp(c->postgres.url, option_find("postgres", "url")->initial) == 0 &&
           strcmp(c->amqp.url, option_find("amqp", "url")->initial) == 0;
}

enum hold_policy config_hold_policy(const struct config *c, bool has_transport)
{
    return hold_policy_make(has_transport, c->handover.what == HANDOVER_ALL);
}

double config_slo_target(const struct config *c)
{
    return strtod(c->slo.target, NULL) / 100;
}

struct accept_rules config_accept_rules(const struct config *c)
{
    return (struct accept_rules){
        .intake_queue = c->intake.queue,
        .intake_exchange = c->intake.exchange,
        .cell_exchange = c->cell.exchange,
        .delivery_exchange = c->delivery.exchange,
        .routes = c->routes,
        .route_count = c->route_count,
        .allow = (const char *const *)c->delivery.allow,
        .allow_count = c->delivery.allow_count,
        .max_delay_ms = c->delivery.max_delay_ms,
        .max_body = (size_t)c->intake.max_body,
        .max_properties = MAX_PROPERTIES,
        .hold = config_hold_policy(c, c->handover.transport != TRANSPORT_TIMER),
        .broker_stamps = false, /* the intake finds out */
    };
}

int64_t config_least_ahead_ms(const struct config *c)
{
    return hold_policy_least_ahead_ms(c->handover.min_ahead_ms, c->delivery.lead_ms);
}

int64_t config_declared_window_ms(const struct config *c)
{
    return c->handover.window_ms + 1000;
}
