/* What the commands of `postdate` share. One thread; data goes to stdout, words to stderr. */
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

struct cli {
    const char *config_path; /* -c, or NULL */
    const char *cells_path;  /* --cells, or NULL */
    const struct cell *cell; /* whose database cli_open opens; NULL: that of the configuration */
    int only_word;           /* with a cell: the one word that it is asked for, from 1; 0: all */
    const struct command *command;
    const struct cli_verb *verb; /* of the command, if it has verbs (gateway/cli/command.h) */
    int word_count;              /* what stands behind them and is no option */
    char **words;
    const struct cli_option *rows[CLI_ROWS_MAX]; /* the command's options */
    bool given[CLI_ROWS_MAX];
    size_t row_count;
    bool has_config; /* config is loaded and to be freed */
    struct config config;
    struct cells cells; /* of cells_path, once they are asked */
    struct pg *pg;      /* open after cli_open */
    int64_t now_ms;     /* by its clock, as of then; cli_now asks again */
    struct arena arena; /* for what is read from it, until the command ends */
    bool changing;      /* something was changed, or was about to be: the database's log tells who did it */
    int64_t changed;
    struct {
        const char *option, *text;
        int64_t ms;
    } times[CLI_TIMES_MAX]; /* given in words: what they come to is said once the command line is right */
    int time_count;
};

/* Where several cells are asked one after the other (gateway/cli/cells/cells_run.h), the one that is asked
 * now: what is printed as JSON, and said of errors, names it. */
struct cli_asking {
    const char *cell;     /* NULL: none */
    bool others_follow;   /* that there is no such thing here is not said */
    enum err_kind failed; /* of the last error that cli_fail had */
    bool explained;       /* it was not found, but something is known of it */
};
struct cli_asking *cli_asking(void);

/* Loads the configuration; opens the connection and asks its clock, which migrate does without checking the
 * schema. Errors are printed; 0 or the exit code. */
enum cli_schema { CLI_SCHEMA_CURRENT, CLI_SCHEMA_ANY };
int cli_load_config(struct cli *cli);
/* Of a struct config_report. */
void cli_report_mistake(void *ctx, enum err_kind kind, const char *text);
void cli_report_warning(void *ctx, const char *text);
int cli_open(struct cli *cli, enum cli_schema schema);
/* As pg_open, or with answer_ms > 0 as health_open; root as pg_url_service_user. */
struct pg *cli_connect(const char *url, const char *name, int answer_ms, struct err *e);
/* Whom and what cli_connect asks for, as pg_url_names. */
void cli_database_names(const char *url, char role[PG_NAME_SIZE], char database[PG_NAME_SIZE]);
/* A connection to RabbitMQ as the configuration says; errors as broker_open. */
struct broker *cli_broker_open(const struct config *c, const char *name, int wait_ms, struct err *e);

/* How to switch the colour of standard output: "" unless that is a terminal; never with NO_COLOR set
 * (no-color.org) or TERM=dumb. */
enum cli_color { CLI_PLAIN, CLI_RED, CLI_YELLOW, CLI_GREEN };
const char *cli_color(enum cli_color color);
/* "postdate: text" and a line end on stderr; what acts on a terminal is escaped. The level is for systemd's
 * journal. */
void cli_say_at(enum config_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define cli_say(...) cli_say_at(LOG_LEVEL_INFO, __VA_ARGS__)
#define cli_warn(...) cli_say_at(LOG_LEVEL_WARNING, __VA_ARGS__)
/* The same at level error; returns the exit code of the error. */
int cli_fail(const struct err *e);
int cli_no_memory(void);

/* Prints an object as it is, with the cell in front of its fields where one of several is asked. */
void cli_print_object(struct bytes text);
/* Prints it with a line end, and releases it. flags: of jansson's json_dumps. 0, or the exit code. */
int cli_print_json(json_t *value, size_t flags);
/* "postdate schedule: text" and where to read more; returns 64. */
int cli_usage(const struct cli *cli, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The same for a word that is none of `words` (separated by blanks): which was probably meant, or, if none
 * is near, `choices`. */
int cli_unknown(const struct cli *cli, const char *word, const char *words, const char *choices);

/* Counts what was changed, for the audit line that is written at the end. */
void cli_changed(struct cli *cli, int64_t count);

/* An id, or 64 with an explanation on stderr. */
int cli_parse_id(const struct cli *cli, const char *text, struct message_id *out);
/* An RFC 3339 time, or one in words (core/base/when.h), which cli_load_config says: option (without its
 * dashes) and text have to outlive it. 64 with an explanation on stderr if it is none. */
int cli_parse_time(struct cli *cli, const char *option, const char *text, int64_t *out_ms);
/* The database's clock, into cli->now_ms; errors are printed. 0 or the exit code. */
int cli_now(struct cli *cli);

/* The id that a key names, in exchange or (NULL) delivery.exchange; errors are printed. 0 or the exit code.
 */
int cli_find_key(struct cli *cli, const char *exchange, const char *key, struct message_id *out);

/* "in 14 min", "3 s ago" */
#define CLI_WHEN_SIZE 48
const char *cli_format_when(int64_t at_ms, int64_t now_ms, char out[CLI_WHEN_SIZE]);

/* Why writing to stdout failed (an errno), 0 while it works. Ask soon after writing. */
int cli_output_error(void);

#endif
