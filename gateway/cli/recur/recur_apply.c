#include "gateway/cli/recur/recur_apply.h"

#include "core/base/arena.h"
#include "gateway/cli/fields.h"
#include "gateway/cli/recur/recur_print.h"
#include "gateway/cli/recur/yaml_json.h"
#include "sql/operate/recur.h"

#include <stdio.h>
#include <string.h>

#define FILE_BYTES_MAX ((size_t)32 * 1024 * 1024)

static bool begins_as_json(struct bytes text)
{
    size_t i = 0;
    while (i < text.len && strchr(" \t\r\n", text.data[i]) != NULL && text.data[i] != '\0')
        i++;
    return i < text.len && text.data[i] == '{';
}

/* The text of a file as JSON: YAML is turned into it, JSON stays as it is. json is where to put the former.
 */
static int read_definitions(struct bytes text, struct buf *json, struct bytes *out, struct err *e)
{
    json_error_t where;
    *out = text;
    if (!begins_as_json(text)) {
        if (yaml_to_json(text, json, e) != 0)
            return -1;
        *out = buf_bytes(json);
    }
    /* Of a number only that it is one: Postgres says of a header's which are too large, and keeps a body. */
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL;
    json_t *checked = json_loadb((const char *)out->data, out->len, flags, &where);
    if (checked == NULL)
        return out->data == text.data ? err_set(e, ERR_REJECT, "line %d: %s", where.line, where.text)
                                      : err_set(e, ERR_REJECT, "%s", where.text);
    json_decref(checked);
    return 0;
}

static void print_changes(const json_t *changes, const struct recur_apply_options *o)
{
    int count[3] = {0};
    size_t i;
    json_t *one;
    json_array_foreach(changes, i, one)
    {
        const char *change = json_string_value(json_object_get(one, "change"));
        count[*change == '+' ? 0 : *change == '~' ? 1 : 2]++;
        printf("%s %s\n", change, json_string_value(json_object_get(one, "name")));
        recur_print_difference(json_object_get(one, "old"), json_object_get(one, "new"));
    }
    if (json_array_size(changes) == 0)
        cli_say("nothing differs");
    else
        cli_say("%d added, %d changed, %d removed%s", count[0], count[1], count[2],
                o->dry_run ? " (a dry run: nothing was done)" : "");
}

static int apply_definitions(struct cli *cli, const struct recur_apply_options *o, struct bytes definitions,
                             struct arena *a)
{
    char who[RECUR_WHO_SIZE];
    struct bytes answer;
    struct err e = {0};
    const struct recur_apply q = {.schedules = definitions,
                                  .prefix = o->prefix != NULL ? o->prefix : "",
                                  .via = recur_who(who),
                                  .dry_run = o->dry_run};
    int code = cli_open(cli, CLI_SCHEMA_CURRENT);
    if (code != 0)
        return code;
    if (recur_apply(cli->pg, &q, a, &answer, &e) != 0)
        return cli_fail(&e);
    json_t *changes = json_loadb((const char *)answer.data, answer.len, 0, NULL);
    if (!o->dry_run)
        cli_changed(cli, (int64_t)json_array_size(changes));
    if (changes == NULL)
        return cli_no_memory();
    if (o->json)
        code = cli_print_json(changes, JSON_INDENT(2));
    else
        print_changes(changes, o);
    json_decref(changes);
    return code;
}

int recur_apply_file(struct cli *cli, const struct recur_apply_options *o)
{
    struct arena a;
    struct buf json;
    struct bytes text, definitions;
    struct err e = {0};
    arena_init(&a, (size_t)1 << 30);
    buf_init(&json, FILE_BYTES_MAX * 4);
    int code = cli_read_file(o->file, FILE_BYTES_MAX, "a file of schedules may have", &a, &text);
    if (code == 0 && read_definitions(text, &json, &definitions, &e) != 0) {
        err_wrap(&e, "%s", o->file);
        code = cli_fail(&e);
    }
    if (code == 0)
        code = apply_definitions(cli, o, definitions, &a);
    buf_free(&json);
    arena_free(&a);
    return code;
}
