/* What a command is: its options and verbs are tables, from which come the parsing, the checks which verb
 * takes which option, and the help. */
#ifndef POSTDATE_GATEWAY_CLI_COMMAND_H
#define POSTDATE_GATEWAY_CLI_COMMAND_H

#include "gateway/cli/cli.h"
#include <getopt.h>

/* Takes the text of an option (NULL: it has none) to where the row says; 0 or the exit code. */
struct cli_option;
typedef int cli_take(struct cli *cli, const struct cli_option *o, void *at, const char *text);

/* A row without a name is a line of the help. {0} ends a table. */
struct cli_option {
    const char *name;  /* without its dashes */
    const char *value; /* what the help calls its value; NULL: it takes none */
    const char *help;
    cli_take *take; /* NULL: cli_gave tells */
    size_t offset;  /* in the command's order */
    char letter;
    int64_t max;       /* of cli_take_number */
    const char *field; /* of cli_take_field, where it is not the name */
    const char *of;    /* the verbs that take it, "list and show"; NULL: all */
    const char *words; /* those that the value may be, for completion: "allow skip"; with a comma before
                          them: a list of them; CLI_FILE; NULL: anything */
    const struct cli_option *more; /* nothing else: the rows of another table stand here */
};
#define CLI_TAKE(what, order, member) cli_take_##what, .offset = offsetof(struct order, member)
#define CLI_FILE "FILE"
#define CLI_HELP_LINE "\n                      " /* in a help that goes on */

cli_take cli_take_flag;  /* bool */
cli_take cli_take_text;  /* const char * */
cli_take cli_take_bytes; /* struct bytes; data is not NULL then */
cli_take cli_take_time, cli_take_duration;
cli_take cli_take_number; /* int64_t, from 1 to max */

/* How a command or a verb is run with --cells. */
enum cli_cells {
    CLI_CELLS_NONE, /* not at all: it is for one database */
    CLI_CELLS_FIND, /* of messages that are named by ids or by a key: until a cell has it */
    CLI_CELLS_KEYS, /* the same, and a key is looked for in all of them */
    CLI_CELLS_EACH, /* in one after the other */
};

/* {0} ends a table. */
struct cli_verb {
    const char *name;
    int (*run)(struct cli *cli, void *order); /* the exit code */
    int least, most;                          /* words behind it: cli->words */
    const char *wrong;                        /* said of fewer or more */
    int kind;                                 /* the command's own */
    enum cli_cells cells;
    bool takes_file;                     /* its words are names of files, for completion */
    const struct cli_question *question; /* of one that asks for an operation (gateway/cli/ops/question.h) */
};

struct cli_operation;
struct command {
    const char *name;
    const char *synopsis; /* behind "postdate NAME " */
    const char *summary;  /* one line */
    const char *notes;    /* more of the help, or NULL */
    const struct cli_option *options;
    const struct cli_verb *verbs;               /* NULL: it has none, and is run itself */
    const char *choices;                        /* of verbs: "say list or show" */
    int (*check)(struct cli *cli, void *order); /* what can be said wrong with it before; or NULL */
    bool opens;                                 /* the database is opened then (cli_open) */
    int (*run)(struct cli *cli, void *order);
    bool takes_words;    /* without verbs: they are in cli->words */
    size_t order_size;   /* what the options are taken into: zeros, or */
    const void *initial; /* a copy of this */
    void (*close)(void *order);
    bool has_content;                      /* its options may hold what nobody is to log */
    enum cli_cells cells;                  /* without verbs */
    const char *cells_not;                 /* options, "watch here", that do not go with --cells; or NULL */
    const struct cli_operation *operation; /* of the commands that work on named or filtered messages
                                              (gateway/cli/filter.h), else NULL */
};

extern const struct command command_migrate, command_schedule, command_show, command_list, command_cancel,
    command_reschedule, command_retry, command_fail, command_status, command_feed, command_token,
    command_doctor, command_dead, command_retry_policy, command_recur, command_forecast, command_rejected,
    command_drop_topology, command_import, command_rate;

/* Every command's long options end with these, and its short ones begin with CLI_SHORT. */
#define CLI_SHORT ":c:h"
#define CLI_CELLS 255 /* what getopt calls --cells */
#define CLI_LONG                                                                                             \
    {"config", required_argument, NULL, 'c'}, {"cells", required_argument, NULL, CLI_CELLS},                 \
        {"help", no_argument, NULL, 'h'}, {"version", no_argument, NULL, 'V'},                               \
    {                                                                                                        \
        NULL, 0, NULL, 0                                                                                     \
    }
/* Handles -c (returns -1: go on); for -h, --version and mistakes returns the exit code to leave with. */
int cli_common_option(struct cli *cli, int option, char **argv);

/* Runs cli->command, in each cell that is to be asked; argv[0] is its name. The exit code. */
int cli_run(struct cli *cli, int argc, char **argv);
/* The same once: in the database of the configuration, or in cli->cell. CLI_ASK_CELLS: the command line is
 * right, and nothing was done, for --cells was given; the words that name messages are in cli->words. */
#define CLI_ASK_CELLS (-2)
int cli_run_once(struct cli *cli, int argc, char **argv);
/* Prints what completion is made from (packaging/completion/generate.sh): a line for the command, for each
 * verb, and for each option of each of them, with tabs between "option", command, verb, letter, name, value,
 * words and help; "-" is none. */
void cli_describe(struct cli *cli);
/* How cli->command, with its verb, is run with --cells. */
enum cli_cells cli_cells_of(const struct cli *cli);
/* Any of these options, "limit group", was given. */
bool cli_gave(const struct cli *cli, const char *names);

#endif
