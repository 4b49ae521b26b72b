/* A command: parsing, the check which verb has which options, and the help come from tables of its options
 * and verbs. */
#ifndef POSTDATE_GATEWAY_CLI_COMMAND_H
#define POSTDATE_GATEWAY_CLI_COMMAND_H

#include "gateway/cli/cli.h"
#include <getopt.h>

/* Stores the value of an option (NULL: it has none) at the place in its row; 0 or the exit code. */
struct cli_option;
typedef int cli_take(struct cli *cli, const struct cli_option *o, void *at, const char *text);

/* A row without a name is a line of the help. A table ends with {0}. */
struct cli_option {
    const char *name;  /* without its dashes */
    const char *value; /* its value's name in the help; NULL: no value */
    const char *help;
    cli_take *take; /* NULL: use cli_gave */
    size_t offset;  /* in the command's order (the struct of its options) */
    char letter;
    int64_t max;       /* of cli_take_number */
    const char *field; /* of cli_take_field, if it differs from the name */
    const char *of;    /* the verbs with this option, "list and show"; NULL: all */
    const char *words; /* possible values, for completion: "allow skip"; with a leading comma: a list of them;
                          CLI_FILE; NULL: any */
    const struct cli_option *more; /* this row stands for the rows of another table */
};
#define CLI_TAKE(what, order, member) cli_take_##what, .offset = offsetof(struct order, member)
#define CLI_FILE "FILE"
#define CLI_HELP_LINE "\n                      " /* continues the help on the next line */

cli_take cli_take_flag;  /* bool */
cli_take cli_take_text;  /* const char * */
cli_take cli_take_bytes; /* struct bytes; data is not NULL then */
cli_take cli_take_time, cli_take_duration;
cli_take cli_take_number; /* int64_t, from 1 to max */

/* How a command or verb runs with --cells. */
enum cli_cells {
    CLI_CELLS_NONE, /* not allowed: for one database */
    CLI_CELLS_FIND, /* messages by ids or a key: cell by cell until one has it */
    CLI_CELLS_KEYS, /* the same, but a key is looked up in all cells */
    CLI_CELLS_EACH, /* in all cells, one after the other */
};

/* A table ends with {0}. */
struct cli_verb {
    const char *name;
    int (*run)(struct cli *cli, void *order); /* the exit code */
    int least, most;                          /* number of arguments after it: cli->words */
    const char *wrong;                        /* the error for fewer or more */
    int kind;                                 /* the command's own */
    enum cli_cells cells;
    bool takes_file; /* its arguments are file names, for completion */
    /* of a verb that runs an operation of the table (gateway/cli/ops/question.h) */
    const struct cli_question *question;
};

struct cli_operation;
struct command {
    const char *name;
    const char *synopsis; /* after "postdate NAME " */
    const char *summary;  /* one line */
    const char *notes;    /* more of the help, or NULL */
    const struct cli_option *options;
    const struct cli_verb *verbs; /* NULL: none; `run` is the command itself */
    const char *choices;          /* the error for an unknown verb: "write list or show" */
    int (*check)(struct cli *cli,
                 void *order); /* checks the arguments before the database is opened; or NULL */
    bool opens;                /* opens the database before run (cli_open) */
    int (*run)(struct cli *cli, void *order);
    bool takes_words;    /* without verbs: it has arguments, in cli->words */
    size_t order_size;   /* size of the struct for the options, filled with zeros or … */
    const void *initial; /* … a copy of this */
    void (*close)(void *order);
    bool has_content;      /* its options may contain message content, which must not be logged */
    enum cli_cells cells;  /* without verbs */
    const char *cells_not; /* options, "watch here", that are not allowed with --cells; or NULL */
    /* of commands on messages by id, key or filter (gateway/cli/filter.h), else NULL */
    const struct cli_operation *operation;
};

extern const struct command command_migrate, command_schedule, command_show, command_list, command_cancel,
    command_reschedule, command_retry, command_fail, command_status, command_feed, command_token,
    command_doctor, command_dead, command_retry_policy, command_recur, command_forecast, command_rejected,
    command_drop_topology, command_import, command_rate;

/* Every command's long options end with CLI_LONG, and its short ones begin with CLI_SHORT. */
#define CLI_SHORT ":c:h"
#define CLI_CELLS 255 /* getopt's value of --cells */
#define CLI_LONG                                                                                             \
    {"config", required_argument, NULL, 'c'}, {"cells", required_argument, NULL, CLI_CELLS},                 \
        {"help", no_argument, NULL, 'h'}, {"version", no_argument, NULL, 'V'},                               \
    {                                                                                                        \
        NULL, 0, NULL, 0                                                                                     \
    }
/* Handles the common options. -1: continue; else (-h, --version, errors) the exit code. */
int cli_common_option(struct cli *cli, int option, char **argv);

/* Runs cli->command, in each cell if there are several; argv[0] is its name. The exit code. */
int cli_run(struct cli *cli, int argc, char **argv);
/* Runs it once: in the database of the configuration, or of cli->cell. CLI_ASK_CELLS: the command line is
 * valid, but --cells was given, so nothing was done; cli->words has the arguments. */
#define CLI_ASK_CELLS (-2)
int cli_run_once(struct cli *cli, int argc, char **argv);
/* Prints the data for completion (packaging/completion/generate.sh): a line for the command, for each verb,
 * and for each of their options, with tabs between "option", command, verb, letter, name, value, words and
 * help; "-" is none. */
void cli_describe(struct cli *cli);
/* How cli->command, with its verb, runs with --cells. */
enum cli_cells cli_cells_of(const struct cli *cli);
/* Was any of these options, "limit group", given? */
bool cli_gave(const struct cli *cli, const char *names);

#endif
