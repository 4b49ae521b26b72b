/* Converts the text of an option, or of a route, to its field; look-ups in the table. */
#include "core/base/bytes.h"
#include "core/base/duration.h"
#include "core/message/message.h"
#include "gateway/config/config_report.h"
#include "gateway/config/config_table.h"
#include "gateway/config/ini_file.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB INT64_C(1024)
#define MIB (1024 * KIB)

static void *field_at(const struct config *c, size_t offset)
{
    return (char *)(uintptr_t)c + offset;
}

/* An exchange name as [route] and `allow` write it: "" in quotes is the default exchange. Returns an owned
 * copy. */
static char *exchange_dup(const char *value, struct err *e)
{
    if (strcmp(value, "\"\"") == 0)
        value = "";
    else if (*value == '\0') {
        err_set(e, ERR_CONFIG,
                "is empty: write an exchange name, or \"\" in quotes for the default exchange");
        return NULL;
    }
    if (strlen(value) > MESSAGE_NAME_MAX || !bytes_is_text(bytes_of_str(value))) {
        err_set(e, ERR_CONFIG, "holds a name that is not UTF-8 of up to %d bytes", MESSAGE_NAME_MAX);
        return NULL;
    }
    char *copy = strdup(value);
    if (copy == NULL)
        err_set(e, ERR_BUG, "out of memory");
    return copy;
}

static int set_text(const struct option *o, struct config *c, const char *value, struct err *e)
{
    if (*value == '\0' && !o->optional)
        return err_set(e, ERR_CONFIG, "is empty: it needs a value (default: %s)", o->initial);
    if (o->check != NULL && o->check(value, e) != 0)
        return -1;
    char *copy = NULL;
    if (*value != '\0' && (copy = strdup(value)) == NULL)
        return err_set(e, ERR_BUG, "out of memory");
    option_clear(o, c);
    *(char **)field_at(c, o->offset) = copy;
    return 0;
}

/* Of DURATION, SIZE and INTEGER, as a user would write it. */
static const char *format_number(const struct option *o, int64_t n, char *out, size_t size)
{
    bool whole = n % MIB == 0;
    if (o->kind == OPTION_DURATION)
        return duration_format(n, out, size);
    if (o->kind == OPTION_INTEGER)
        snprintf(out, size, "%lld", (long long)n);
    else
        snprintf(out, size, "%lld%s", (long long)(n / (whole ? MIB : KIB)), whole ? "MiB" : "KiB");
    return out;
}

/* Not a number: treated as beyond the limits. */
static int64_t parse_integer(const struct option *o, const char *value)
{
    char *end = NULL;
    errno = 0;
    long long n = strtoll(value, &end, 10);
    if (*value == '\0' && o->optional)
        return -1;
    return end == value || *end != '\0' || isspace((unsigned char)*value) || errno != 0 ? INT64_MIN : n;
}

static int set_number(const struct option *o, struct config *c, const char *value, struct err *e)
{
    int64_t n = 0;
    uint64_t bytes = 0;
    char low[40], high[40];
    int rc = 0;
    if (o->kind == OPTION_INTEGER) {
        n = parse_integer(o, value);
    } else if (o->kind == OPTION_SIZE) {
        rc = size_parse(value, &bytes, e);
        n = bytes <= INT64_MAX ? (int64_t)bytes : INT64_MAX;
    } else if (strcmp(value, "0") != 0) { /* a bare 0 needs no unit */
        rc = duration_parse(value, &n, e);
    }
    if (rc != 0) {
        e->kind = ERR_CONFIG;
        return -1;
    }
    bool none = o->optional && *value == '\0';
    if (!none && (n < o->min || n > o->max))
        return err_set(e, ERR_CONFIG,
                       o->kind == OPTION_INTEGER ? "\"%s\" is not allowed: write a whole number from %s to %s"
                                                 : "%s is out of range: allowed are %s to %s",
                       value, format_number(o, o->min, low, sizeof low),
                       format_number(o, o->max, high, sizeof high));
    *(int64_t *)field_at(c, o->offset) = n;
    return 0;
}

static int set_choice(const struct option *o, struct config *c, const char *value, struct err *e)
{
    for (int i = 0; o->choices[i] != NULL; i++) {
        if (strcmp(o->choices[i], value) != 0)
            continue;
        if (o->kind == OPTION_FLAG)
            *(bool *)field_at(c, o->offset) = i == 1;
        else
            *(int *)field_at(c, o->offset) = i;
        return 0;
    }
    char allowed[120] = "";
    size_t used = 0;
    for (int i = 0; o->choices[i] != NULL && used < sizeof allowed; i++)
        used +=
            (size_t)snprintf(allowed + used, sizeof allowed - used, "%s%s", i > 0 ? ", " : "", o->choices[i]);
    return err_set(e, ERR_CONFIG, "\"%s\" is not allowed: write one of %s", value, allowed);
}

static void free_list(char **items, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(items[i]);
    free(items);
}

static int set_list(const struct option *o, struct config *c, const char *value, struct err *e)
{
    if (*value == '\0' && o->optional) {
        option_clear(o, c);
        return 0;
    }
    size_t count = 0, capacity = 1;
    for (const char *p = value; *p != '\0'; p++)
        capacity += *p == ',';
    char **items = calloc(capacity, sizeof *items);
    char *copy = strdup(value), *rest = copy;
    if (items == NULL || copy == NULL) {
        err_set(e, ERR_BUG, "out of memory");
        goto fail;
    }
    for (; rest != NULL; count++)
        if ((items[count] = exchange_dup(ini_file_trim(strsep(&rest, ",")), e)) == NULL)
            goto fail;
    free(copy);
    option_clear(o, c);
    *(char ***)field_at(c, o->offset) = items;
    *(size_t *)field_at(c, o->count_offset) = count;
    return 0;
fail:
    free(copy);
    free_list(items, count);
    return -1;
}

int option_set(const struct option *o, struct config *c, const char *value, struct err *e)
{
    switch (o->kind) {
    case OPTION_TEXT:
        return set_text(o, c, value, e);
    case OPTION_DURATION:
    case OPTION_SIZE:
    case OPTION_INTEGER:
        return set_number(o, c, value, e);
    case OPTION_CHOICE:
    case OPTION_FLAG:
        return set_choice(o, c, value, e);
    case OPTION_LIST:
        return set_list(o, c, value, e);
    }
    return err_set(e, ERR_BUG, "unknown kind of option");
}

static void format_list(char *const *items, size_t count, char *out, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < count && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i > 0 ? ", " : "",
                                 *items[i] ? items[i] : "\"\"");
}

void option_format(const struct option *o, const struct config *c, char *out, size_t size)
{
    const void *field = field_at(c, o->offset);
    const char *text = "";
    out[0] = '\0';
    switch (o->kind) {
    case OPTION_TEXT:
        text = *(char *const *)field;
        break;
    case OPTION_DURATION:
    case OPTION_SIZE:
    case OPTION_INTEGER:
        if (*(const int64_t *)field >= 0 || !o->optional)
            format_number(o, *(const int64_t *)field, out, size);
        return;
    case OPTION_CHOICE:
        text = o->choices[*(const int *)field];
        break;
    case OPTION_FLAG:
        text = o->choices[*(const bool *)field];
        break;
    case OPTION_LIST:
        format_list(*(char **const *)field, *(const size_t *)field_at(c, o->count_offset), out, size);
        return;
    }
    snprintf(out, size, "%s", text ? text : "");
}

void option_clear(const struct option *o, struct config *c)
{
    if (o->kind == OPTION_TEXT) {
        char **text = field_at(c, o->offset);
        if (o->secret && *text != NULL)
            explicit_bzero(*text, strlen(*text));
        free(*text);
        *text = NULL;
    } else if (o->kind == OPTION_LIST) {
        char ***items = field_at(c, o->offset);
        size_t *count = field_at(c, o->count_offset);
        free_list(*items, *count);
        *items = NULL;
        *count = 0;
    }
}

const struct option *option_find(const char *section, const char *name)
{
    for (size_t i = 0; i < option_count; i++) {
        if (strcmp(option_table[i].section, section) == 0 && strcmp(option_table[i].name, name) == 0)
            return &option_table[i];
    }
    return NULL;
}

bool option_section_exists(const char *section)
{
    if (strcmp(section, "route") == 0)
        return true;
    for (size_t i = 0; i < option_count; i++) {
        if (strcmp(option_table[i].section, section) == 0)
            return true;
    }
    return false;
}

const char *option_env_name(const struct option *o, char out[OPTION_ENV_SIZE])
{
    snprintf(out, OPTION_ENV_SIZE, "POSTDATE_%s_%s", o->section, o->name);
    for (char *p = out; *p != '\0'; p++)
        *p = (char)toupper((unsigned char)*p);
    return out;
}

bool option_nearest(const char *section, const char *word, char out[OPTION_NEAR_SIZE])
{
    char words[OPTION_COUNT_MAX * OPTION_NEAR_SIZE] = "route";
    size_t used = section == NULL ? strlen(words) : 0;
    words[used] = '\0';
    for (const struct option *o = option_table; o < option_table + option_count; o++)
        if (section == NULL || strcmp(o->section, section) == 0)
            used += (size_t)snprintf(words + used, sizeof words - used, " %s",
                                     section == NULL ? o->section : o->name);
    return nearest_word(word, words, out, OPTION_NEAR_SIZE);
}

void config_clear_routes(struct config *c)
{
    for (size_t i = 0; i < c->route_count; i++) {
        free((void *)(uintptr_t)c->routes[i].intake_exchange);
        free((void *)(uintptr_t)c->routes[i].delivery_exchange);
    }
    free(c->routes);
    c->routes = NULL;
    c->route_count = 0;
}

static const char *skip_blanks(const char *text)
{
    return text + strspn(text, " \t");
}

const char *config_route_delay(const char *text)
{
    static const char name[] = "delay";
    text = skip_blanks(text);
    if (strncmp(text, name, strlen(name)) != 0)
        return NULL;
    text = skip_blanks(text + strlen(name));
    return *text == '=' ? skip_blanks(text + 1) : NULL;
}

/* What stands behind the comma of an entry: "delay=5s". */
static int parse_route_option(const char *text, int64_t *delay_ms, struct err *e)
{
    const char *value = config_route_delay(text);
    if (value == NULL)
        return err_set(e, ERR_CONFIG,
                       "\"%.80s\" is not allowed behind the delivery exchange: write exchange, or "
                       "exchange, delay=5s",
                       skip_blanks(text));
    struct err why;
    if (duration_parse(value, delay_ms, &why) != 0)
        return err_set(e, ERR_CONFIG, "%s", why.text);
    return 0;
}

int config_add_route(struct config *c, const char *intake, const char *target, struct err *e)
{
    const char *comma = strchr(target, ',');
    int64_t delay_ms = 0;
    if (comma != NULL && parse_route_option(comma + 1, &delay_ms, e) != 0)
        return -1;
    /* Nothing can be bound to the default exchange. */
    if (*intake == '\0' || strcmp(intake, "\"\"") == 0)
        return err_set(e, ERR_CONFIG,
                       "the intake exchange is empty: write intake-exchange=delivery-exchange");
    for (size_t i = 0; i < c->route_count; i++) {
        if (strcmp(c->routes[i].intake_exchange, intake) == 0)
            return err_set(e, ERR_CONFIG, "is given twice: an intake exchange has one delivery exchange");
    }
    struct accept_route *routes = realloc(c->routes, (c->route_count + 1) * sizeof *routes);
    if (routes == NULL)
        return err_set(e, ERR_BUG, "out of memory");
    c->routes = routes;
    size_t len = comma != NULL ? (size_t)(comma - target) : strlen(target);
    while (len > 0 && (target[len - 1] == ' ' || target[len - 1] == '\t'))
        len--;
    char *delivery = strdup(target);
    if (delivery == NULL)
        return err_set(e, ERR_BUG, "out of memory");
    delivery[len] = '\0';
    char *from = exchange_dup(intake, e);
    char *to = from == NULL ? NULL : exchange_dup(delivery, e);
    free(delivery);
    if (to == NULL) {
        free(from);
        return -1;
    }
    routes[c->route_count++] =
        (struct accept_route){.intake_exchange = from, .delivery_exchange = to, .delay_ms = delay_ms};
    return 0;
}
