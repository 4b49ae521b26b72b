/* The table of options: names, kinds, limits, defaults and help, and the conversion of a value to a field of
 * struct config. Only gateway/config/config*.c and its tests include this. */
#ifndef POSTDATE_GATEWAY_CONFIG_CONFIG_TABLE_H
#define POSTDATE_GATEWAY_CONFIG_CONFIG_TABLE_H

#include "core/base/err.h"
#include "gateway/config/config.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum option_kind {
    OPTION_TEXT,     /* char *, NULL while empty */
    OPTION_DURATION, /* int64_t ms */
    OPTION_SIZE,     /* uint64_t bytes */
    OPTION_INTEGER,  /* int64_t, -1 while empty */
    OPTION_CHOICE,   /* an enum; its values are the positions in choices */
    OPTION_FLAG,     /* bool; choices has two values, the second one means true */
    OPTION_LIST, /* char ** at offset, size_t at count_offset; comma-separated, "" in quotes is an empty item
                  */
};

struct option {
    const char *section, *name;
    enum option_kind kind;
    const char *initial; /* default, in the form a user would write */
    int64_t min, max;    /* DURATION, SIZE, INTEGER: limits of the value */
    bool optional;       /* TEXT, INTEGER, LIST: may be empty */
    bool prefixed;       /* TEXT: amqp.prefix replaces the first part of the default */
    bool secret;         /* never printed; …_FILE in the environment is allowed */
    const char *const *choices;
    int (*check)(const char *value, struct err *e); /* TEXT: further check, or NULL; must not print secrets */
    size_t offset, count_offset;
    const char *help;
};

extern const struct option option_table[];
extern const size_t option_count;

#define OPTION_COUNT_MAX 64

/* NULL when there is none. */
const struct option *option_find(const char *section, const char *name);
bool option_section_exists(const char *section); /* also for "route" */

#define OPTION_NEAR_SIZE 32
/* The section (section NULL), or the option of that section, with a name similar to word; false: none. */
bool option_nearest(const char *section, const char *word, char out[OPTION_NEAR_SIZE]);

#define OPTION_ENV_SIZE 64
/* "POSTDATE_AMQP_URL" */
const char *option_env_name(const struct option *o, char out[OPTION_ENV_SIZE]);

/* Checks value and stores it, freeing what was there. ERR_CONFIG: the text has the error and what is allowed,
 * without the option's name. */
int option_set(const struct option *o, struct config *c, const char *value, struct err *e);
/* The value in the form a user would write, cut to size. Not of a secret. */
void option_format(const struct option *o, const struct config *c, char *out, size_t size);
/* Frees what the option owns. */
void option_clear(const struct option *o, struct config *c);

/* An entry of [route]; target: "delivery-exchange", or "delivery-exchange, delay=5s". */
int config_add_route(struct config *c, const char *intake, const char *target, struct err *e);
/* VALUE, if the text after the comma of a target is "delay=VALUE". NULL: it is not. */
const char *config_route_delay(const char *text);
void config_clear_routes(struct config *c);

#endif
