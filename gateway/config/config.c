/* Loading: defaults, then the file, then the environment. All errors of each source are reported. */
#include "gateway/config/config.h"
#include "core/base/bytes.h"
#include "core/base/duration.h"
#include "core/base/names.h"
#include "gateway/config/config_report.h"
#include "gateway/config/config_table.h"
#include "gateway/config/ini_file.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECRET_MAX ((size_t)16 * 1024)

/* --- the file */
static void begin_section(struct ini_file *s)
{
    char near[OPTION_NEAR_SIZE];
    if (option_section_exists(s->section))
        return;
    if (option_nearest(NULL, s->section, near))
        ini_file_mistake(s, "unknown section [%s]: did you mean [%s]?", s->section, near);
    else
        ini_file_mistake(s, "unknown section [%s]", s->section);
}

static void take_unknown(struct ini_file *s, const char *name)
{
    char near[OPTION_NEAR_SIZE];
    if (!option_section_exists(s->section))
        return;
    if (option_nearest(s->section, name, near))
        ini_file_mistake(s, "unknown option %s.%s: did you mean %s.%s?", s->section, name, s->section, near);
    else
        ini_file_mistake(s, "unknown option %s.%s", s->section, name);
}

static void take_option(struct ini_file *s, const char *name, const char *value)
{
    const char *section = s->section;
    const struct option *o = option_find(section, name);
    struct err e;
    if (strcmp(section, "route") == 0) {
        if (config_add_route(s->loader->config, name, value, &e) != 0)
            ini_file_mistake(s, "route.%s: %s", name, e.text);
        return;
    }
    if (o == NULL) {
        take_unknown(s, name);
        return;
    }
    int *lines = s->ctx, *seen = &lines[o - option_table]; /* on which the options were set */
    if (*seen != 0)
        ini_file_mistake(s, "%s.%s: set before, on line %d", section, name, *seen);
    else if (option_set(o, s->loader->config, value, &e) != 0)
        ini_file_mistake(s, "%s.%s: %s", section, name, e.text);
    *seen = s->line;
    s->secret = s->secret || (o->secret && ini_file_has_password(value));
}

/* The two sources of options (config.c). */
static void config_load_file(struct config_loader *l, const char *path, bool must_exist)
{
    int lines[OPTION_COUNT_MAX] = {0};
    struct ini_file f = {
        .loader = l, .path = path, .begin = begin_section, .take = take_option, .ctx = lines};
    if (ini_file_read(&f, "chmod o-r, or keep the address in a file of its own (POSTDATE_AMQP_URL_FILE)") !=
        0) {
        if (errno != ENOENT || must_exist)
            config_unread(l, path, "the configuration", errno, "it is larger than 1 MiB");
        return;
    }
    l->config->source = strdup(path);
    if (l->config->source == NULL)
        config_mistake(l, path, 0, "out of memory");
}

/* --- the environment */
static void set_from_environment(struct config_loader *l, const struct option *o, const char *variable,
                                 const char *value)
{
    struct err e;
    if (option_set(o, l->config, value, &e) != 0)
        config_mistake(l, variable, 0, "%s", e.text);
}

static void set_from_secret_file(struct config_loader *l, const struct option *o, const char *variable,
                                 const char *path)
{
    char *text = ini_file_text(path, SECRET_MAX);
    if (text == NULL) {
        config_unread(l, variable, path, errno, "it is larger than 16 KiB");
        return;
    }
    text[strcspn(text, "\r\n")] = '\0';
    set_from_environment(l, o, variable, text);
    if (ini_file_has_password(text))
        config_warn_exposed(l, path, "chmod o-r");
    explicit_bzero(text, strlen(text));
    free(text);
}

/* The first route of *rest, with its delay; *rest: what follows, or NULL. */
static char *take_route(char **rest)
{
    char *item = *rest, *end = strchr(item, ',');
    while (end != NULL && config_route_delay(end + 1) != NULL)
        end = strchr(end + 1, ',');
    if (end != NULL)
        *end++ = '\0';
    *rest = end;
    return ini_file_trim(item);
}

/* POSTDATE_ROUTE="a=b,c=d,delay=5s" replaces the [route] section. */
static void load_routes(struct config_loader *l, const char *value)
{
    char *copy = strdup(value), *rest = copy;
    if (copy == NULL)
        config_mistake(l, "POSTDATE_ROUTE", 0, "out of memory");
    config_clear_routes(l->config);
    while (rest != NULL) {
        struct err e;
        char *item = take_route(&rest);
        char *equals = strchr(item, '=');
        if (equals == NULL) {
            config_mistake(l, "POSTDATE_ROUTE", 0, "\"%s\" is not intake-exchange=delivery-exchange", item);
            continue;
        }
        *equals = '\0';
        if (config_add_route(l->config, ini_file_trim(item), ini_file_trim(equals + 1), &e) != 0)
            config_mistake(l, "POSTDATE_ROUTE", 0, "%s: %s", item, e.text);
    }
    free(copy);
}

static bool is_known_variable(const char *name, size_t len)
{
    char env[OPTION_ENV_SIZE];
    static const char *const others[] = {"POSTDATE_CONFIG", "POSTDATE_CELLS", "POSTDATE_ROUTE"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (strlen(others[i]) == len && strncmp(name, others[i], len) == 0)
            return true;
    }
    for (size_t i = 0; i < option_count; i++) {
        size_t env_len = strlen(option_env_name(&option_table[i], env));
        if (strncmp(name, env, env_len) != 0)
            continue;
        if (len == env_len)
            return true;
        if (option_table[i].secret && len == env_len + 5 && strncmp(name + env_len, "_FILE", 5) == 0)
            return true;
    }
    return false;
}

static void warn_unknown_variables(struct config_loader *l)
{
    char text[480];
    size_t used = 0;
    for (char **v = environ; *v != NULL; v++) {
        size_t len = strcspn(*v, "=");
        if (strncmp(*v, "POSTDATE_", 9) != 0 || is_known_variable(*v, len) || used >= sizeof text)
            continue;
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "%s%.*s", used > 0 ? ", " : "", (int)len, *v);
    }
    if (used == 0)
        return;
    char warning[600];
    snprintf(warning, sizeof warning, "ignored environment variables that are no options: %s", text);
    config_warn(l, warning);
}

static void config_load_environment(struct config_loader *l)
{
    for (size_t i = 0; i < option_count; i++) {
        const struct option *o = &option_table[i];
        char name[OPTION_ENV_SIZE], file_name[OPTION_ENV_SIZE + 8];
        /* Set but empty counts as not set, as container tools pass on variables that they don't have. */
        const char *value = getenv(option_env_name(o, name));
        snprintf(file_name, sizeof file_name, "%s_FILE", name);
        const char *path = o->secret ? getenv(file_name) : NULL;
        bool has_value = value != NULL && *value != '\0', has_path = path != NULL && *path != '\0';
        if (has_value && has_path)
            config_mistake(l, file_name, 0, "%s is set too: set only one of them", name);
        else if (has_value)
            set_from_environment(l, o, name, value);
        else if (has_path)
            set_from_secret_file(l, o, file_name, path);
    }
    const char *routes = getenv("POSTDATE_ROUTE");
    if (routes != NULL && *routes != '\0')
        load_routes(l, routes);
    warn_unknown_variables(l);
}

/* --- Loading. */

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

/* Names that are not set begin with the prefix. */
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

/* If delivery.allow is not set: the exchanges to which messages without a delivery exchange are delivered. */
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
                       "intake.exchange and delivery.exchange are both \"%s\": messages would loop",
                       c->intake.exchange);
    if (c->http.listen != NULL && strcmp(c->http.listen, "off") != 0 && !c->http.tokens &&
        !c->http.insecure_listen && !is_loopback(c->http.listen))
        config_mistake(
            l, where, 0,
            "http.listen: other machines can reach \"%s\", and http.tokens is off: any client could schedule "
            "and cancel (allowed: an address of 127.0.0.1 or [::1], tokens=on, or insecure_listen=on)",
            c->http.listen);
    if (c->cell.exchange != NULL && (strcmp(c->cell.exchange, c->intake.exchange) == 0 ||
                                     strcmp(c->cell.exchange, c->delivery.exchange) == 0))
        config_mistake(
            l, where, 0,
            "cell.exchange is \"%s\", as intake.exchange or delivery.exchange is: messages would loop",
            c->cell.exchange);
    for (size_t i = 0; i < c->route_count; i++) {
        const struct accept_route *r = &c->routes[i];
        if (strcmp(r->intake_exchange, c->intake.exchange) == 0 ||
            strcmp(r->intake_exchange, c->delivery.exchange) == 0)
            config_mistake(l, where, 0,
                           "route.%s: this exchange is already intake.exchange or delivery.exchange",
                           r->intake_exchange);
        if (strcmp(r->intake_exchange, r->delivery_exchange) == 0)
            config_mistake(l, where, 0, "route.%s: leads to itself: messages would loop", r->intake_exchange);
        char delay[40], most[40];
        if (r->delay_ms > l->config->delivery.max_delay_ms)
            config_mistake(l, where, 0, "route.%s: the delay of %s is longer than delivery.max_delay (%s)",
                           r->intake_exchange, duration_format(r->delay_ms, delay, sizeof delay),
                           duration_format(l->config->delivery.max_delay_ms, most, sizeof most));
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
          "# POSTDATE_AMQP_URL_FILE. These are the defaults.\n",
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
    fputs("\n# Further intake exchanges, each with its delivery exchange, and with the delay of messages "
          "that\n# have none (POSTDATE_ROUTE=\"orders.delayed=orders,…\").\n"
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
