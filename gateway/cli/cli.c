#include "gateway/cli/cli.h"

#include "core/base/bytes.h"
#include "core/base/clock.h"
#include "core/base/names.h"
#include "core/base/timestamp.h"
#include "core/base/when.h"
#include "gateway/cli/command.h"
#include "gateway/cli/text.h"
#include "gateway/config/journal.h"
#include "gateway/config/secrets.h"
#include "sql/admin/health.h"
#include "sql/admin/migrate.h"
#include "sql/operate/operate.h"
#include "sql/pipeline/store.h"
#include <errno.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAY_MAX 4096

/* If both are one file, earlier output stays in front, and no line is split. */
static void flush_output(void)
{
    fflush(stdout);
    cli_output_error();
}

/* Names of users are in it, and may hold anything. */
static void say_text(const char *fmt, va_list args)
{
    char text[SAY_MAX], shown[4 * SAY_MAX];
    vsnprintf(text, sizeof text, fmt, args);
    fputs(text_words(bytes_of_str(text), shown, sizeof shown), stderr);
}

void cli_say_at(enum config_log_level level, const char *fmt, ...)
{
    va_list args;
    flush_output();
    fprintf(stderr, "%spostdate: ", journal_priority(level));
    va_start(args, fmt);
    say_text(fmt, args);
    va_end(args);
    fputc('\n', stderr);
}

int cli_fail(struct cli *cli, const struct err *e)
{
    struct cli_asking *asking = &cli->asking;
    asking->failed = e->kind;
    if (asking->others_follow && e->kind == ERR_NOT_FOUND)
        return err_exit_code(e);
    if (asking->cell != NULL)
        cli_say_at(LOG_LEVEL_ERROR, "cell %s: %s", asking->cell, e->text);
    else
        cli_say_at(LOG_LEVEL_ERROR, "%s", e->text);
    return err_exit_code(e);
}

int cli_no_memory(struct cli *cli)
{
    struct err e;
    err_set(&e, ERR_BUG, "out of memory");
    return cli_fail(cli, &e);
}

void cli_print_object(const struct cli *cli, struct bytes text)
{
    const char *cell = cli->asking.cell;
    if (cell != NULL && text.len > 2 && text.data[0] == '{') {
        bool lines = text.data[1] == '\n'; /* names of cells need no escapes */
        printf(lines ? "{\n  \"cell\": \"%s\"," : "{\"cell\":\"%s\",", cell);
        text = bytes_of(text.data + 1, text.len - 1);
    }
    if (isatty(STDOUT_FILENO) == 1)
        text_print_as_json(text);
    else
        fwrite(text.data, 1, text.len, stdout);
}

int cli_print_json(struct cli *cli, json_t *value, size_t flags)
{
    char *text = json_dumps(value, flags);
    json_decref(value);
    if (text == NULL)
        return cli_no_memory(cli);
    cli_print_object(cli, bytes_of_str(text));
    putchar('\n');
    free(text);
    return 0;
}

int cli_usage(const struct cli *cli, const char *fmt, ...)
{
    const char *name = cli->command != NULL ? cli->command->name : NULL;
    va_list args;
    flush_output();
    fprintf(stderr, "%spostdate%s%s: ", journal_priority(LOG_LEVEL_ERROR), name != NULL ? " " : "",
            name != NULL ? name : "");
    va_start(args, fmt);
    say_text(fmt, args);
    va_end(args);
    fprintf(stderr, " (see `postdate%s%s --help`)\n", name != NULL ? " " : "", name != NULL ? name : "");
    return 64;
}

int cli_unknown(const struct cli *cli, const char *word, const char *words, const char *choices)
{
    char near[40];
    if (nearest_word(word, words, near, sizeof near))
        return cli_usage(cli, "\"%s\" is unknown: did you mean \"%s\"?", word, near);
    return cli_usage(cli, "%s", choices);
}

void cli_report_mistake(void *ctx, enum err_kind kind, const char *text)
{
    (void)ctx, (void)kind;
    cli_say_at(LOG_LEVEL_ERROR, "%s", text);
}

void cli_report_warning(void *ctx, const char *text)
{
    (void)ctx;
    cli_warn("%s", text);
}

int cli_load_config(struct cli *cli)
{
    const struct config_report report = {.mistake = cli_report_mistake, .warning = cli_report_warning};
    struct err e;
    char shown[40];
    for (int i = 0; i < cli->time_count; i++)
        cli_say("--%s %s: that is %s", cli->times[i].option, cli->times[i].text,
                timestamp_format(cli->times[i].ms, shown, sizeof shown));
    cli->time_count = 0;
    if (config_load(&cli->config, cli->config_path, &report, &e) != 0)
        return err_exit_code(&e);
    cli->has_config = true;
    names_set_prefix(cli->config.amqp.prefix);
    names_set_intake(cli->config.intake.queue);
    secrets_allow_dumps(cli->config.log.core_dumps);
    return 0;
}

typedef struct pg *pg_opener(const char *url, const char *name, int answer_ms, struct err *e);

static struct pg *open_patiently(const char *url, const char *name, int answer_ms, struct err *e)
{
    (void)answer_ms;
    return pg_open(url, name, e);
}

/* Root as the service's user. */
static struct pg *open_as(pg_opener *open, const char *url, const char *name, int answer_ms, struct err *e)
{
    const struct passwd *user = pg_url_service_user(url);
    bool moved = user != NULL && seteuid(user->pw_uid) == 0;
    struct pg *c = open(url, name, answer_ms, e);
    if (moved && seteuid(0) != 0)
        abort();
    return c;
}

struct pg *cli_connect(const char *url, const char *name, int answer_ms, struct err *e)
{
    return open_as(answer_ms > 0 ? health_open : open_patiently, url, name, answer_ms, e);
}

void cli_database_names(const char *url, char role[PG_NAME_SIZE], char database[PG_NAME_SIZE])
{
    const struct passwd *service = pg_url_service_user(url), *user = service ? service : getpwuid(geteuid());
    pg_url_names(url, user != NULL ? user->pw_name : "postdate", role, database);
}

struct broker *cli_broker_open(const struct config *c, const char *name, int wait_ms, struct err *e)
{
    const struct broker_options options = {
        .url = c->amqp.url,
        .name = name,
        .connect_timeout_ms = wait_ms,
        .ca_file = c->amqp.ca_file,
        .cert_file = c->amqp.cert_file,
        .key_file = c->amqp.key_file,
    };
    return broker_open(&options, e);
}

int cli_open(struct cli *cli, enum cli_schema schema)
{
    struct err e;
    int code = cli->has_config ? 0 : cli_load_config(cli);
    if (code != 0)
        return code;
    cli->pg = cli->cell != NULL ? open_as(pg_open_other, cli->cell->postgres_url, "postdate", 0, &e)
                                : cli_connect(cli->config.postgres.url, "postdate", 0, &e);
    if (cli->pg == NULL)
        return cli_fail(cli, &e);
    /* Which broker the schema belongs to is the gateway's to check: the command line works without one. */
    if (schema == CLI_SCHEMA_CURRENT && migrate_check(cli->pg, "", "", false, &e) != 0)
        return cli_fail(cli, &e);
    return schema == CLI_SCHEMA_CURRENT ? cli_now(cli) : 0;
}

int cli_parse_id(const struct cli *cli, const char *text, struct message_id *out)
{
    char shown[80];
    if (message_id_parse(bytes_of_str(text), out) && message_id_is_ours(*out))
        return 0;
    return cli_usage(cli, "\"%s\" is not a message id: one looks like 01937f5e-4c00-8a1b-9c2d-3e4f5a6b7c8d",
                     bytes_printable(bytes_of_str(text), shown, sizeof shown));
}

int cli_parse_time(struct cli *cli, const char *option, const char *text, int64_t *out_ms)
{
    struct err e;
    bool in_words;
    if (when_parse(text, clock_wall_ms(), out_ms, &in_words, &e) != 0)
        return cli_usage(cli, "--%s: %s", option, e.text);
    if (in_words && cli->time_count < CLI_TIMES_MAX) {
        cli->times[cli->time_count].option = option;
        cli->times[cli->time_count].text = text;
        cli->times[cli->time_count++].ms = *out_ms;
    }
    return 0;
}

void cli_changed(struct cli *cli, int64_t count)
{
    cli->changing = true;
    cli->changed += count;
}

int cli_now(struct cli *cli)
{
    struct err e;
    int64_t now_us;
    if (store_clock(cli->pg, &now_us, &e) != 0)
        return cli_fail(cli, &e);
    cli->now_ms = now_us / 1000;
    return 0;
}

int cli_find_key(struct cli *cli, const char *exchange, const char *key, struct message_id *out)
{
    struct err e;
    if (exchange == NULL)
        exchange = cli->config.delivery.exchange;
    if (operate_find_key(cli->pg, NULL, bytes_of_str(exchange), bytes_of_str(key), out, &e) == 0)
        return 0;
    return cli_fail(cli, &e);
}

int cli_output_error(void)
{
    static int first;
    if (first == 0 && ferror(stdout))
        first = errno != 0 ? errno : EIO;
    return first;
}
