#include "gateway/cli/fields.h"

#include "gateway/json/json_memory.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* jansson takes all UTF-8 that it has memory for. 0, or the exit code. */
static int check_set(struct cli *cli, const char *option, const char *text, int rc)
{
    if (rc == 0)
        return 0;
    return json_memory_refused() ? cli_no_memory(cli)
                                 : cli_usage(cli, "--%s: \"%s\" is not UTF-8 text", option, text);
}

json_t *cli_object_at(json_t **at)
{
    if (*at == NULL)
        *at = json_object();
    return *at;
}

int cli_take_field(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    json_t *object = cli_object_at(at);
    char field[40];
    snprintf(field, sizeof field, "%s", o->field != NULL ? o->field : o->name);
    for (char *dash = field; (dash = strchr(dash, '-')) != NULL;)
        *dash = '_';
    if (json_object_get(object, field) != NULL)
        return cli_usage(cli, "--%s is given twice", o->name);
    int64_t n;
    int code = o->max > 0 ? cli_take_number(cli, o, &n, text) : 0;
    if (code != 0)
        return code;
    return check_set(cli, o->name, text,
                     json_object_set_new(object, field, o->max > 0 ? json_integer(n) : json_string(text)));
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

int cli_take_pair(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    json_t *object = cli_object_at(at);
    const char *equals = strchr(text, '=');
    char name[300];
    if (equals == NULL || equals == text || (size_t)(equals - text) >= sizeof name)
        return cli_usage(cli, "--%s: \"%s\" is not NAME=VALUE", o->name, text);
    snprintf(name, sizeof name, "%.*s", (int)(equals - text), text);
    bool is_header = strcmp(o->name, "header") == 0;
    if (is_header && (strcmp(name, "CC") == 0 || strcmp(name, "BCC") == 0))
        return cli_usage(cli,
                         "--header: %s is a list of routing keys: write it in a --batch file, as "
                         "\"headers\":{\"%s\":[\"a\",\"b\"]}",
                         name, name);
    bool guess = is_header || is_number_property(name);
    if (json_object_get(object, name) != NULL)
        return cli_usage(cli, "--%s: %s is given twice", o->name, name);
    json_t *value = guess ? guess_value(equals + 1) : json_string(equals + 1);
    return check_set(cli, o->name, text, json_object_set_new(object, name, value));
}

const struct cli_option cli_content_options[] = {
    {"header", "N=V", "an AMQP header; V is an integer where it looks like one; repeatable",
     CLI_TAKE(pair, cli_fields, headers), .of = "set"},
    {"property", "N=V", "an AMQP property: priority=5, correlation_id=a1; repeatable",
     CLI_TAKE(pair, cli_fields, properties), .of = "set"},
    {"content-type", "T", "of the body, such as application/json", CLI_TAKE(field, cli_fields, properties),
     .of = "set"},
    {"body", "S", "the body", CLI_TAKE(text, cli_fields, body), .of = "set"},
    {"file", "F", "the body from a file; - for stdin", CLI_TAKE(text, cli_fields, file), .of = "set",
     .words = CLI_FILE},
    {0},
};

void cli_fields_join(const struct cli_fields *f)
{
    if (json_object_size(f->headers) > 0)
        json_object_set(f->object, "headers", f->headers);
    if (json_object_size(f->properties) > 0)
        json_object_set(f->object, "properties", f->properties);
}

void cli_fields_close(void *order)
{
    struct cli_fields *f = order;
    json_decref(f->object);
    json_decref(f->headers);
    json_decref(f->properties);
}

/* The body from path ("-": stdin), at most max bytes, in the arena. 0 or the exit code. */
int cli_read_body(struct cli *cli, const char *path, size_t max, struct arena *a, struct bytes *out)
{
    return cli_read_file(cli, path, max, "intake.max_body allows", a, out);
}

int cli_cannot_read(struct cli *cli, const char *path)
{
    struct err e;
    err_set(&e, errno == ENOENT ? ERR_NOT_FOUND : ERR_REJECT, "cannot read %s: %s", path, strerror(errno));
    return cli_fail(cli, &e);
}

int cli_read_file(struct cli *cli, const char *path, size_t max, const char *limit, struct arena *a,
                  struct bytes *out)
{
    struct err e;
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *f = is_stdin ? stdin : fopen(path, "re");
    if (f == NULL)
        return cli_cannot_read(cli, path);
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
    return result == 0 ? 0 : cli_fail(cli, &e);
}
