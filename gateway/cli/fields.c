#include "gateway/cli/fields.h"

#include "gateway/json/json_memory.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cli_no_memory(void)
{
    struct err e;
    err_set(&e, ERR_BUG, "out of memory");
    return cli_fail(&e);
}

/* jansson did not take it: it takes all UTF-8 that it has memory for. */
static int not_text(const struct cli *cli, const char *option, const char *value)
{
    if (json_memory_refused())
        return cli_no_memory();
    return cli_usage(cli, "%s: \"%s\" is not UTF-8 text", option, value);
}

int cli_set_text(const struct cli *cli, json_t *object, const char *field, const char *option,
                 const char *value)
{
    if (json_object_get(object, field) != NULL)
        return cli_usage(cli, "%s is given twice", option);
    if (json_object_set_new(object, field, json_string(value)) != 0)
        return not_text(cli, option, value);
    return -1;
}

/* A number where it is written as one, so that it can be written back; else a string ("-0", "007"). */
static json_t *guess_value(const char *text)
{
    char *end = NULL;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    const char *digits = *text == '-' ? text + 1 : text;
    if (*digits >= '0' && *digits <= '9' && *end == '\0' && errno == 0 &&
        (*digits != '0' || strcmp(text, "0") == 0))
        return json_integer(n);
    return json_string(text);
}

/* Properties that AMQP keeps as text stay text, also where they look like a number. */
static bool is_number_property(const char *name)
{
    return strcmp(name, "priority") == 0 || strcmp(name, "delivery_mode") == 0 ||
           strcmp(name, "timestamp") == 0;
}

int cli_set_pair(const struct cli *cli, json_t *object, const char *option, const char *pair)
{
    const char *equals = strchr(pair, '=');
    char name[300];
    if (equals == NULL || equals == pair || (size_t)(equals - pair) >= sizeof name)
        return cli_usage(cli, "%s: \"%s\" is not NAME=VALUE", option, pair);
    snprintf(name, sizeof name, "%.*s", (int)(equals - pair), pair);
    bool is_header = strcmp(option, "--header") == 0;
    if (is_header && (strcmp(name, "CC") == 0 || strcmp(name, "BCC") == 0))
        return cli_usage(cli,
                         "--header: %s is a list of routing keys: write it in a --batch file, as "
                         "\"headers\":{\"%s\":[\"a\",\"b\"]}",
                         name, name);
    bool guess = is_header || is_number_property(name);
    if (json_object_get(object, name) != NULL)
        return cli_usage(cli, "%s: %s is given twice", option, name);
    if (json_object_set_new(object, name, guess ? guess_value(equals + 1) : json_string(equals + 1)) != 0)
        return not_text(cli, option, pair);
    return -1;
}

/* The body from path ("-": stdin), at most max bytes, in the arena. 0 or the exit code. */
int cli_read_body(const char *path, size_t max, struct arena *a, struct bytes *out)
{
    return cli_read_file(path, max, "intake.max_body allows", a, out);
}

int cli_cannot_read(const char *path)
{
    struct err e;
    err_set(&e, errno == ENOENT ? ERR_NOT_FOUND : ERR_REJECT, "cannot read %s: %s", path, strerror(errno));
    return cli_fail(&e);
}

int cli_read_file(const char *path, size_t max, const char *limit, struct arena *a, struct bytes *out)
{
    struct err e;
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *f = is_stdin ? stdin : fopen(path, "re");
    if (f == NULL)
        return cli_cannot_read(path);
    uint8_t *data = arena_alloc(a, max + 1);
    size_t len = data == NULL ? 0 : fread(data, 1, max + 1, f);
    int result = 0;
    if (data == NULL)
        result = err_set(&e, ERR_BUG, "out of memory");
    else if (ferror(f))
        result = err_set(&e, ERR_REJECT, "cannot read %s: %s", path, strerror(errno));
    else if (len > max)
        result = err_set(&e, ERR_REJECT, "%s is longer than the %zu bytes that %s",
                         is_stdin ? "the body from stdin" : path, max, limit);
    if (!is_stdin)
        fclose(f);
    *out = bytes_of(data, len);
    return result == 0 ? 0 : cli_fail(&e);
}
