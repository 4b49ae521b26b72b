/* Commands that run an operation of the table (gateway/ops/api_operation.h), as the control queue does, on
 * the command's connection, for all exchanges. Options and arguments become the request's fields; tables
 * format the answer for users. */
#ifndef POSTDATE_GATEWAY_CLI_OPS_QUESTION_H
#define POSTDATE_GATEWAY_CLI_OPS_QUESTION_H

#include "gateway/cli/command.h"
#include "gateway/cli/fields.h"
#include "gateway/cli/ops/sheet.h"

struct cli_question {
    const char *operation;            /* its name in the table */
    const char *words;                /* the fields of the arguments, separated by blanks */
    const struct sheet_cell *columns; /* of an answer that is a list; NULL: it is one object */
    const struct sheet_cell *lines;   /* of an answer that is one object, with "said"; NULL: prints "said" */
};

/* The order of such a command; its options use cli_take_field. */
struct cli_asked {
    json_t *fields; /* NULL: none */
};
#define CLI_ASKED(...) CLI_ASKED_BY(cli_question_run, __VA_ARGS__)
#define CLI_ASKED_BY(run_, operation_, words_, ...)                                                          \
    .run = (run_), .question = &(const struct cli_question)                                                  \
    {                                                                                                        \
        .operation = (operation_), .words = (words_), __VA_ARGS__                                            \
    }

/* For struct command: check and close; for its verbs: run. */
int cli_question_check(struct cli *cli, void *order);
int cli_question_run(struct cli *cli, void *order);
void cli_question_close(void *order);
/* Prints a table or, with --json, an object per line. The exit code. */
int cli_print_list(struct cli *cli, const struct sheet_cell *columns, const json_t *list);

#endif
