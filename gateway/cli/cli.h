/* Shared by the commands of `postdate`. One thread; data goes to stdout, messages to stderr. */
#ifndef POSTDATE_GATEWAY_CLI_CLI_H
#define POSTDATE_GATEWAY_CLI_CLI_H

#include "amqp/connection/broker.h"
#include "core/base/arena.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include "core/message/message_id.h"
#include "gateway/config/cells.h"
#include "gateway/config/config.h"
#include "sql/connection/pg.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLI_TIMES_MAX 4
#define CLI_ROWS_MAX 32

/* The current cell, while several cells are queried one after the other (gateway/cli/cells/cells_run.c): JSON
 * output and errors contain its name. */
struct cli_asking {
    const char *cell;     /* NULL: none */
    bool others_follow;   /* more cells follow: "not found" is not printed */
    enum err_kind failed; /* of the last error of cli_fail */
    bool explained;       /* not found, but the error explains why */
};

struct cli {
    const char *config_path; /* -c, or NULL */
    const char *cells_path;  /* --cells, or NULL */
    const struct cell *cell; /* whose database cli_open opens; NULL: that of the configuration */
    struct cli_asking asking;
    int only_word; /* with a cell: the only word to look up there, from 1; 0: all */
    const struct command *command;
    const struct cli_verb *verb; /* of the command, if it has verbs (gateway/cli/command.h) */
    int word_count;              /* arguments after them that are not options */
    char **words;
    const struct cli_option *rows[CLI_ROWS_MAX]; /* the command's options */
    bool given[CLI_ROWS_MAX];
    size_t row_count;
    bool has_config; /* config is loaded and to be freed */
    struct config config;
    struct cells cells; /* of cells_path, once it is read */
    struct pg *pg;      /* open after cli_open */
    int64_t now_ms;     /* by its clock, when it was opened; cli_now reads it again */
    struct arena arena; /* for data read from it, until the command ends */
    bool changing; /* something was changed, or was about to be: an audit line is written to the database's
                      log */
    int64_t changed;
    struct {
        const char *option, *text;
        int64_t ms;
    } times[CLI_TIMES_MAX]; /* times given in words: printed in full once the command line is valid */
    int time_count;
};

/* cli_load_config loads the configuration; cli_open also connects and reads the clock; CLI_SCHEMA_ANY (for
 * migrate): without checking the schema. Errors are printed; 0 or the exit code. */
enum cli_schema { CLI_SCHEMA_CURRENT, CLI_SCHEMA_ANY };
int cli_load_config(struct cli *cli);
/* Functions for a struct config_report. */
void cli_report_mistake(void *ctx, enum err_kind kind, const char *text);
void cli_report_warning(void *ctx, const char *text);
int cli_open(struct cli *cli, enum cli_schema schema);
/* As pg_open, or with answer_ms > 0 as health_open; root as pg_url_service_user. */
struct pg *cli_connect(const char *url, const char *name, int answer_ms, struct err *e);
/* The role and the database of cli_connect, as pg_url_names. */
void cli_database_names(const char *url, char role[PG_NAME_SIZE], char database[PG_NAME_SIZE]);
/* A connection to RabbitMQ as the configuration says; errors as broker_open. */
struct broker *cli_broker_open(const struct config *c, const char *name, int wait_ms, struct err *e);

/* The escape sequence for a colour on standard output; "" if that is not a terminal, NO_COLOR is set
 * (no-color.org), or TERM=dumb. */
enum cli_color { CLI_PLAIN, CLI_RED, CLI_YELLOW, CLI_GREEN };
const char *cli_color(enum cli_color color);
/* Prints "postdate: text" and a line end on stderr; terminal controls are escaped. The level is for systemd's
 * journal. */
void cli_say_at(enum config_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define cli_say(...) cli_say_at(LOG_LEVEL_INFO, __VA_ARGS__)
#define cli_warn(...) cli_say_at(LOG_LEVEL_WARNING, __VA_ARGS__)
/* The same at level error, with the name of cli->asking.cell; "not found" is not printed while others_follow.
 * Sets cli->asking.failed. Returns the exit code of the error. */
int cli_fail(struct cli *cli, const struct err *e);
int cli_no_memory(struct cli *cli);

/* Prints a JSON object as it is; while several cells are queried, with the cell as its first field. */
void cli_print_object(const struct cli *cli, struct bytes text);
/* Prints it with a line end, and releases it. flags: of jansson's json_dumps. 0, or the exit code. */
int cli_print_json(struct cli *cli, json_t *value, size_t flags);
/* Prints "postdate schedule: text" and a hint to the help; returns 64. */
int cli_usage(const struct cli *cli, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The same for an argument that is not among `words` (separated by blanks): suggests a similar one or, if
 * none is similar, prints `choices`. */
int cli_unknown(const struct cli *cli, const char *word, const char *words, const char *choices);

/* Adds to the number of changed objects in the audit line at the end. */
void cli_changed(struct cli *cli, int64_t count);

/* An id, or 64 with an explanation on stderr. */
int cli_parse_id(const struct cli *cli, const char *text, struct message_id *out);
/* An RFC 3339 time, or one in words (core/base/when.h), which cli_load_config prints in full: option (without
 * its dashes) and text must outlive it. 64 with an explanation on stderr if it is none. */
int cli_parse_time(struct cli *cli, const char *option, const char *text, int64_t *out_ms);
/* The database's clock, into cli->now_ms; errors are printed. 0 or the exit code. */
int cli_now(struct cli *cli);

/* The id of the message with a key, in exchange or (NULL) delivery.exchange; errors are printed. 0 or the
 * exit code. */
int cli_find_key(struct cli *cli, const char *exchange, const char *key, struct message_id *out);

/* "in 14 min", "3 s ago" */
#define CLI_WHEN_SIZE 48
const char *cli_format_when(int64_t at_ms, int64_t now_ms, char out[CLI_WHEN_SIZE]);

/* The errno of a failed write to stdout; 0: none failed. Call it soon after writing. */
int cli_output_error(void);

#endif
