/* Runs a command once, or, with --cells, in one database after the other.
 *
 * To look up a message, the cell in its id is queried first, then the others, until one has it. If a cell
 * cannot be queried, the result says so, because that cell may have the message. */
#include "gateway/cli/command.h"
#include "sql/admin/audit.h"
#include "sql/pipeline/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHAT_SIZE 600

struct run {
    struct cli *cli;
    int argc;
    char **argv;
    char what[WHAT_SIZE]; /* for the log of the database */
};

static int run_once(struct run *r)
{
    int code = cli_run_once(r->cli, r->argc, r->argv);
    if (r->cli->changed > 0 && r->cli->pg != NULL)
        store_wake(r->cli->pg);
    if (r->cli->changing) {
        /* To the log of the database, which the user of this command cannot change. */
        char shown[WHAT_SIZE];
        struct err e;
        bytes_printable(bytes_of_str(r->what), shown, sizeof shown);
        if (audit_note(r->cli->pg, shown, r->cli->changed, code, &e) != 0)
            cli_say("this could not be recorded in the log of PostgreSQL: %s", e.text);
    }
    return code;
}

/* word: as cli->only_word. */
static int run_in_cell(struct run *r, const struct cell *cell, int word)
{
    struct cli *cli = r->cli;
    pg_close(cli->pg);
    cli->pg = NULL;
    cli->changing = false;
    cli->changed = 0;
    cli->cell = cell;
    cli->only_word = word;
    cli->asking.failed = ERR_NONE;
    return run_once(r);
}

/* --- each cell */

static int run_in_each(struct run *r)
{
    const struct cells *cells = &r->cli->cells;
    bool json = cli_gave(r->cli, "json");
    int worst = 0;
    for (size_t i = 0; i < cells->count && worst != 64 && cli_output_error() == 0; i++) {
        r->cli->asking.cell = cells->list[i].name;
        if (!json)
            printf("%s== cell %s ==\n", i > 0 ? "\n" : "", cells->list[i].name);
        int code = run_in_cell(r, &cells->list[i], 0);
        worst = code > worst ? code : worst;
    }
    return worst;
}

/* --- the cell that has a message */

struct search {
    const char *name;            /* the object that is looked up, for users */
    int word;                    /* as cli->only_word */
    bool all;                    /* also behind one that has it */
    const struct cell *explains; /* has not got it, but knows something of it; NULL: none does */
    int found, code;             /* how many cells have it; the worst code of them */
    int away;                    /* the code of one that could not be asked */
    char who[300];               /* those that could not: "north, south" */
};

static void note_away(struct search *s, const struct cell *cell, int code)
{
    size_t used = strlen(s->who);
    s->away = code > s->away ? code : s->away;
    snprintf(s->who + used, sizeof s->who - used, "%s%s", used > 0 ? ", " : "", cell->name);
}

static void ask_cell(struct run *r, struct search *s, const struct cell *cell)
{
    struct cli_asking *asking = &r->cli->asking;
    *asking = (struct cli_asking){.cell = cell->name, .others_follow = true};
    int code = run_in_cell(r, cell, s->word);
    if (asking->failed == ERR_NOT_FOUND) {
        if (asking->explained && s->explains == NULL)
            s->explains = cell;
        return;
    }
    if (asking->failed != ERR_NONE) {
        note_away(s, cell, code);
        return;
    }
    s->found++;
    s->code = code > s->code ? code : s->code;
    if (code != 64 && !cli_gave(r->cli, "json"))
        cli_say("%s: in cell %s", s->name, cell->name);
}

/* The exit code. */
static int search(struct run *r, struct search *s, const struct message_id *id)
{
    size_t order[CELLS_MAX];
    const struct cells *cells = &r->cli->cells;
    cells_order(cells, id, order);
    for (size_t i = 0; i < cells->count && s->code != 64 && (s->found == 0 || s->all); i++)
        ask_cell(r, s, &cells->list[order[i]]);
    r->cli->asking = (struct cli_asking){0};
    if (s->away != 0 && (s->found == 0 || s->all)) {
        cli_say("%s: %s, but cell %s could not be queried and may have it", s->name,
                s->found > 0 ? "not in any other cell" : "not in any cell that answered", s->who);
        return 69;
    }
    if (s->found > 0)
        return s->code;
    const struct cell *says = s->explains != NULL ? s->explains : &cells->list[order[0]];
    if (says == s->explains)
        r->cli->asking.cell = says->name;
    else if (id != NULL && !cells_may_have(cells, *id))
        cli_say(
            "%s: the number of its cell is %d, which is not in the file of cells (is a cell missing there?)",
            s->name, message_id_cell(*id));
    /* One says, as it does when it is the only one, that there is none. */
    return run_in_cell(r, says, s->word);
}

/* Of several ids, as where all of them are in one cell. */
static int join_codes(int one, int other)
{
    if (one == other && one != 66)
        return one;
    if (one == 64 || other == 64 || one == 69 || other == 69)
        return one == 64 || other == 64 ? 64 : 69;
    return one + other == 75 ? 75 : 1;
}

static int find_words(struct run *r)
{
    struct cli *cli = r->cli;
    int count = cli->word_count, joined = -1;
    for (int i = 0; i < count && joined != 64; i++) {
        char name[80];
        struct message_id id;
        char **words = r->argv + r->argc - count; /* getopt has put them behind the options */
        bool is_id = message_id_parse(bytes_of_str(words[i]), &id);
        struct search s = {.name = bytes_printable(bytes_of_str(words[i]), name, sizeof name), .word = i + 1};
        int code = search(r, &s, is_id ? &id : NULL);
        joined = joined < 0 ? code : join_codes(joined, code);
    }
    return joined;
}

static int find(struct run *r)
{
    struct cli *cli = r->cli;
    bool key = cli_gave(cli, "key");
    struct search s = {.name = "this key", .all = cli_cells_of(cli) == CLI_CELLS_KEYS};
    if ((cli->word_count > 0) == key || cli_gave(cli, "state due-after due-before routing-key dry-run"))
        return cli_usage(cli, "with --cells, give message ids or --key KEY; for other filters, choose one "
                              "cell by --config, without --cells");
    return key ? search(r, &s, NULL) : find_words(r);
}

static int load_cells(struct cli *cli)
{
    struct err e = {0};
    const struct config_report report = {.mistake = cli_report_mistake, .warning = cli_report_warning};
    return cells_load(&cli->cells, cli->cells_path, &report, &e) == 0 ? 0 : err_exit_code(&e);
}

int cli_run(struct cli *cli, int argc, char **argv)
{
    struct run r = {.cli = cli, .argc = argc, .argv = argv};
    const char *path = getenv("POSTDATE_CELLS");
    if (cli->cells_path == NULL && path != NULL && *path != '\0')
        cli->cells_path = cli->config_path == NULL ? path : NULL;
    /* The command as it was called, without what may hold content. */
    bool has_content = r.cli->command->has_content;
    size_t used = 0;
    for (int i = 0; i < r.argc && used < WHAT_SIZE && (!has_content || i < 3); i++)
        if (!has_content || r.argv[i][0] != '-')
            used += (size_t)snprintf(r.what + used, WHAT_SIZE - used, "%s%s", i > 0 ? " " : "", r.argv[i]);
    int code = run_once(&r);
    if (code != CLI_ASK_CELLS)
        return code;
    if (cli_cells_of(cli) == CLI_CELLS_NONE)
        return cli_usage(cli, "it is for one database: choose that of one cell by --config, without --cells");
    if (cli->command->cells_not != NULL && cli_gave(cli, cli->command->cells_not))
        return cli_usage(cli, "not with --cells: %s; choose one cell by --config", cli->command->cells_not);
    if ((code = load_cells(cli)) != 0)
        return code;
    return cli_cells_of(cli) == CLI_CELLS_EACH ? run_in_each(&r) : find(&r);
}
