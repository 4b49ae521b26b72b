/* Commands that ask for an operation of the table (gateway/api/api_operation.h), as the control queue does:
 * with the fields that options and words make, on the command's connection, for all exchanges. What the
 * answer is for people, tables say. */
#ifndef POSTDATE_GATEWAY_CLI_OPS_QUESTION_H
#define POSTDATE_GATEWAY_CLI_OPS_QUESTION_H

#include "gateway/cli/command.h"
#include "gateway/cli/fields.h"
#include "gateway/cli/ops/sheet.h"

struct cli_question {
    const char *operation;            /* its name in the table */
    const char *words;                /* the fields that the words are, between blanks */
    const struct sheet_cell *columns; /* the answer is a list; NULL: it is one thing */
    const struct sheet_cell *lines;   /* of one thing, and "said" beside it; NULL: that is said */
};

/* The order of such a command: its options are cli_take_field, at its begin. */
struct cli_asked {
    json_t *fields; /* NULL: none */
};
#define CLI_ASKED(...) CLI_ASKED_BY(cli_question_run, __VA_ARGS__)
#define CLI_ASKED_BY(run_, operation_, words_, ...)                                                          \
    .run = (run_), .question = &(const struct cli_question)                                                  \
    {                                                                                                        \
        .operation = (operation_), .words = (words_), __VA_ARGS__                                            \
    }

/* Of struct command: check, close; and of its verbs, run. */
int cli_question_check(struct cli *cli, void *order);
int cli_question_run(struct cli *cli, void *order);
void cli_question_close(void *order);
/* A table, or with --json an object a line. The exit code. */
int cli_print_list(const struct cli *cli, const struct sheet_cell *columns, const json_t *list);

#endif
