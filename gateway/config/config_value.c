/* From the text of one option, or of a route, to its field, and the look-ups in the table. */
#include "core/base/bytes.h"
#include "core/base/duration.h"
#include "core/message/message.h"
#include "gateway/config/config_table.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *field_at(struct config *c, size_t offset)
{
    return (char *)c + offset;
}

static void store_value(const struct option *o, struct config *c, const void *value, size_t size)
{
    memcpy(field_at(c, o->offset), value, size);
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
    store_value(o, c, &copy, sizeof copy);
    return 0;
}

static int set_duration(const struct option *o, struct config *c, const char *value, struct err *e)
{
    int64_t ms = 0;
    char low[40], high[40];
    /* A bare 0 needs no unit. */
    if (strcmp(value, "0") != 0 && duration_parse(value, &ms, e) != 0) {
        e->kind = ERR_CONFIG;
        return -1;
    }
    if (ms < o->min || ms > o->max)
        return err_set(e, ERR_CONFIG, "%s is out of range: allowed are %s to %s", value,
                       duration_format(o->min, low, sizeof low), duration_format(o->max, high, sizeof high));
    store_value(o, c, &ms, sizeof ms);
    return 0;
}

static const char *format_size(int64_t bytes, char *out, size_t size)
{
    if (bytes % (1024 * 1024) == 0)
        snprintf(out, size, "%lldMiB", (long long)(bytes / (1024 * 1024)));
    else
        snprintf(out, size, "%lldKiB", (long long)(bytes / 1024));
    return out;
}

static int set_size(const struct option *o, struct config *c, const char *value, struct err *e)
{
    uint64_t bytes = 0;
    char low[40], high[40];
    if (size_parse(value, &bytes, e) != 0) {
        e->kind = ERR_CONFIG;
        return -1;
    }
    if (bytes < (uint64_t)o->min || bytes > (uint64_t)o->max)
        return err_set(e, ERR_CONFIG, "%s is out of range: allowed are %s to %s", value,
                       format_size(o->min, low, sizeof low), format_size(o->max, high, sizeof high));
    store_value(o, c, &bytes, sizeof bytes);
    return 0;
}

static int set_integer(const struct option *o, struct config *c, const char *value, struct err *e)
{
    char *end = NULL;
    errno = 0;
    long long parsed = strtoll(value, &end, 10);
    int64_t n = parsed;
    if (*value == '\0' && o->optional)
        n = -1;
    else if (end == value || *end != '\0' || isspace((unsigned char)*value) || errno == ERANGE ||
             n < o->min || n > o->max)
        return err_set(e, ERR_CONFIG, "\"%s\" is not allowed: write a whole number from %lld to %lld", value,
                       (long long)o->min, (long long)o->max);
    store_value(o, c, &n, sizeof n);
    return 0;
}

static int set_choice(const struct option *o, struct config *c, const char *value, struct err *e)
{
    for (int i = 0; o->choices[i] != NULL; i++) {
        if (strcmp(o->choices[i], value) != 0)
            continue;
        bool flag = i == 1;
        if (o->kind == OPTION_FLAG)
            store_value(o, c, &flag, sizeof flag);
        else
            store_value(o, c, &i, sizeof i);
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
    size_t count = 0, capacity = 1;
    for (const char *p = value; *p != '\0'; p++)
        capacity += *p == ',';
    char **items = calloc(capacity, sizeof *items);
    char *copy = strdup(value), *rest = copy;
    if (items == NULL || copy == NULL) {
        err_set(e, ERR_BUG, "out of memory");
        goto fail;
    }
    while (rest != NULL) {
        char *item = strsep(&rest, ",");
        while (isspace((unsigned char)*item))
            item++;
        size_t len = strlen(item);
        while (len > 0 && isspace((unsigned char)item[len - 1]))
            item[--len] = '\0';
        items[count] = exchange_dup(item, e);
        if (items[count] == NULL)
            goto fail;
        count++;
    }
    free(copy);
    option_clear(o, c);
    memcpy(field_at(c, o->offset), &items, sizeof(char **));
    memcpy(field_at(c, o->count_offset), &count, sizeof count);
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
        return set_duration(o, c, value, e);
    case OPTION_SIZE:
        return set_size(o, c, value, e);
    case OPTION_INTEGER:
        return set_integer(o, c, value, e);
    case OPTION_CHOICE:
    case OPTION_FLAG:
        return set_choice(o, c, value, e);
    case OPTION_LIST:
        return set_list(o, c, value, e);
    }
    return err_set(e, ERR_BUG, "unknown kind of option");
}

static const void *field_of(const struct config *c, size_t offset)
{
    return (const char *)c + offset;
}

static void format_list(const struct option *o, const struct config *c, char *out, size_t size)
{
    char *const *items;
    size_t count, used = 0;
    memcpy(&items, field_of(c, o->offset), sizeof(char **));
    memcpy(&count, field_of(c, o->count_offset), sizeof count);
    for (size_t i = 0; i < count && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i > 0 ? ", " : "",
                                 *items[i] ? items[i] : "\"\"");
}

void option_format(const struct option *o, const struct config *c, char *out, size_t size)
{
    const void *field = field_of(c, o->offset);
    int64_t n = 0;
    const char *text;
    int choice = 0;
    out[0] = '\0';
    switch (o->kind) {
    case OPTION_TEXT:
        memcpy(&text, field, sizeof text);
        snprintf(out, size, "%s", text ? text : "");
        break;
    case OPTION_DURATION:
        memcpy(&n, field, sizeof n);
        duration_format(n, out, size);
        break;
    case OPTION_SIZE:
        memcpy(&n, field, sizeof n);
        format_size(n, out, size);
        break;
    case OPTION_INTEGER:
        memcpy(&n, field, sizeof n);
        if (n >= 0 || !o->optional)
            snprintf(out, size, "%lld", (long long)n);
        break;
    case OPTION_CHOICE:
        memcpy(&choice, field, sizeof choice);
        snprintf(out, size, "%s", o->choices[choice]);
        break;
    case OPTION_FLAG:
        snprintf(out, size, "%s", o->choices[*(const bool *)field]);
        break;
    case OPTION_LIST:
        format_list(o, c, out, size);
    }
}

void option_clear(const struct option *o, struct config *c)
{
    if (o->kind == OPTION_TEXT) {
        char *old = NULL, *none = NULL;
        memcpy(&old, field_at(c, o->offset), sizeof(char *));
        if (o->secret && old != NULL)
            explicit_bzero(old, strlen(old));
        free(old);
        memcpy(field_at(c, o->offset), &none, sizeof(char *));
    } else if (o->kind == OPTION_LIST) {
        char **old = NULL, **none = NULL;
        size_t count = 0, zero = 0;
        memcpy(&old, field_at(c, o->offset), sizeof(char **));
        memcpy(&count, field_at(c, o->count_offset), sizeof count);
        free_list(old, count);
        memcpy(field_at(c, o->offset), &none, sizeof(char **));
        memcpy(field_at(c, o->count_offset), &zero, sizeof zero);
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

/* Edits that turn a into b, up to 31 characters of each. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[32], a_len = strnlen(a, 31), b_len = strnlen(b, 31);
    for (size_t j = 0; j <= b_len; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_len; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            size_t replace = diagonal + (tolower((unsigned char)a[i - 1]) != b[j - 1]);
            size_t shift = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = replace < shift ? replace : shift;
        }
    }
    return row[b_len];
}

static void keep_nearest(const char *wanted, const char *candidate, const char **best, size_t *best_distance)
{
    size_t distance = edit_distance(wanted, candidate);
    if (distance < *best_distance && distance < strlen(candidate)) {
        *best = candidate;
        *best_distance = distance;
    }
}

#define NEAR 4 /* names that differ more than 3 edits are no help */

const char *option_nearest_section(const char *section)
{
    const char *best = NULL;
    size_t distance = NEAR;
    keep_nearest(section, "route", &best, &distance);
    for (size_t i = 0; i < option_count; i++)
        keep_nearest(section, option_table[i].section, &best, &distance);
    return best;
}

const char *option_nearest_name(const char *section, const char *name)
{
    const char *best = NULL;
    size_t distance = NEAR;
    for (size_t i = 0; i < option_count; i++) {
        if (strcmp(option_table[i].section, section) == 0)
            keep_nearest(name, option_table[i].name, &best, &distance);
    }
    return best;
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
