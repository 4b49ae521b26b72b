#include "gateway/config/config_report.h"

#include "core/base/bytes.h"
#include "gateway/config/config_table.h"
#include "gateway/config/ini_file.h"
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
}

static bool has_password(const struct config *c, const int *lines)
{
    for (size_t i = 0; i < option_count; i++) {
        const void *field = (const char *)c + option_table[i].offset;
        if (lines[i] != 0 && option_table[i].secret && ini_file_has_password(*(char *const *)field))
            return true;
    }
    return false;
}

void config_load_file(struct config_loader *l, const char *path, bool must_exist)
{
    int lines[OPTION_COUNT_MAX] = {0};
    char *text = ini_file_text(path, INI_FILE_MAX);
    if (text == NULL) {
        if (errno != ENOENT || must_exist)
            config_unread(l, path, "the configuration", errno, "it is larger than 1 MiB");
        return;
    }
    l->config->source = strdup(path);
    if (l->config->source == NULL)
        config_mistake(l, path, 0, "out of memory");
    struct ini_file f = {
        .loader = l, .path = path, .begin = begin_section, .take = take_option, .ctx = lines};
    size_t size = strlen(text);
    ini_file_read(&f, text);
    if (has_password(l->config, lines))
        config_warn_exposed(l, path,
                            "chmod o-r, or keep the address in a file of its own (POSTDATE_AMQP_URL_FILE)");
    explicit_bzero(text, size); /* the passwords in it */
    free(text);
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
    snprintf(warning, sizeof warning, "environment variables that are no options are ignored: %s", text);
    config_warn(l, warning);
}

void config_load_environment(struct config_loader *l)
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
