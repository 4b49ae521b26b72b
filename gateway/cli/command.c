#include "gateway/cli/command.h"

#include "core/base/bytes.h"
#include "core/base/duration.h"
#include "core/base/version.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY_MAX ((size_t)1 << 30) /* for answers of the database */
#define LONG_ONLY 256                /* and the row's number: what getopt calls an option without a letter */

int cli_take_flag(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    (void)cli, (void)o, (void)text;
    *(bool *)at = true;
    return 0;
}

int cli_take_text(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    (void)cli, (void)o;
    *(const char **)at = text;
    return 0;
}

int cli_take_bytes(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    (void)cli, (void)o;
    *(struct bytes *)at = bytes_of_str(text);
    return 0;
}

int cli_take_time(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    return cli_parse_time(cli, o->name, text, at);
}

int cli_take_duration(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    struct err e;
    return duration_parse(text, at, &e) == 0 ? 0 : cli_usage(cli, "--%s: %s", o->name, e.text);
}

int cli_take_number(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    char *end = NULL;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || n < 1 || n > o->max)
        return cli_usage(cli, "--%s: \"%s\" is not a number from 1 to %lld", o->name, text,
                         (long long)o->max);
    *(int64_t *)at = n;
    return 0;
}

static bool is_of_word(char c)
{
    return isalpha((unsigned char)c) || c == '-';
}

/* Whether text, "list, show and preview", has it as a word. */
static bool has_word(const char *text, const char *word)
{
    size_t len = strlen(word);
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word))
        if ((at == text || !is_of_word(at[-1])) && !is_of_word(at[len]))
            return true;
    return false;
}

/* Those of other tables in their place. */
static void collect_rows(struct cli *cli)
{
    for (const struct cli_option *o = cli->command->options; o->help != NULL || o->more != NULL; o++) {
        const struct cli_option *row = o->more != NULL ? o->more : o;
        do
            cli->rows[cli->row_count++] = row++;
        while (o->more != NULL && row->help != NULL);
    }
}

static void print_row(const struct cli_option *o)
{
    char names[80], letter[8] = "    ";
    if (o->letter != '\0')
        snprintf(letter, sizeof letter, "-%c, ", o->letter);
    snprintf(names, sizeof names, "  %s--%s %s", letter, o->name, o->value != NULL ? o->value : "");
    printf("%-21s %s\n", names, o->help);
}

static bool takes_cells(const struct command *c)
{
    bool some = c->cells != CLI_CELLS_NONE;
    for (const struct cli_verb *v = c->verbs; v != NULL && v->name != NULL; v++)
        some |= v->cells != CLI_CELLS_NONE;
    return some;
}

static void print_help(const struct cli *cli)
{
    const struct command *c = cli->command;
    printf("Usage: postdate %s %s\n\n%s.\n\nOptions:\n", c->name, c->synopsis, c->summary);
    for (size_t i = 0; i < cli->row_count; i++) {
        if (cli->rows[i]->name == NULL)
            puts(cli->rows[i]->help);
        else
            print_row(cli->rows[i]);
    }
    puts("  -c, --config FILE   configuration (else $POSTDATE_CONFIG, else /etc/postdate/postdate.conf)\n"
         "  -h, --help          this text\n"
         "      --version       the version");
    if (takes_cells(c))
        puts("      --cells FILE    several databases, one after the other (else $POSTDATE_CELLS)");
    if (c->notes != NULL)
        printf("\n%s\n", c->notes);
}

static void describe_option(const char *command, const char *verb, const struct cli_option *o)
{
    char letter[3] = {'-', o->letter, '\0'};
    printf("option\t%s\t%s\t%s\t%s\t%s\t%s\t%.*s\n", command, verb, letter, o->name,
           o->value ? o->value : "-", o->words ? o->words : "-", (int)strcspn(o->help, "\n"), o->help);
}

static void describe_options(const struct cli *cli, const struct cli_verb *v)
{
    static const struct cli_option common[] = {
        {.name = "config", .value = "FILE", .help = "configuration", .letter = 'c', .words = CLI_FILE},
        {.name = "help", .help = "what there is", .letter = 'h'},
        {.name = "version", .help = "the version"},
        {.name = "cells", .value = "FILE", .help = "several databases", .words = CLI_FILE},
    };
    const struct command *c = cli->command;
    bool cells = v != NULL ? v->cells != CLI_CELLS_NONE : takes_cells(c);
    for (size_t i = 0; i < cli->row_count; i++) {
        const struct cli_option *o = cli->rows[i];
        if (o->name != NULL && (v == NULL || o->of == NULL || has_word(o->of, v->name)))
            describe_option(c->name, v != NULL ? v->name : "-", o);
    }
    for (size_t i = 0; i < sizeof common / sizeof common[0] - !cells; i++)
        describe_option(c->name, v != NULL ? v->name : "-", &common[i]);
}

void cli_describe(struct cli *cli)
{
    const struct command *c = cli->command;
    cli->row_count = 0;
    collect_rows(cli);
    printf("command\t%s\t%s\n", c->name, c->summary);
    describe_options(cli, NULL); /* with verbs: the options of all, before a verb is given */
    for (const struct cli_verb *v = c->verbs; v != NULL && v->name != NULL; v++) {
        printf("verb\t%s\t%s\t%s\n", c->name, v->name, v->takes_file ? CLI_FILE : "-");
        describe_options(cli, v);
    }
}

int cli_common_option(struct cli *cli, int option, char **argv)
{
    /* getopt has already stepped past a word it did not like, but not past a letter inside one. */
    const char *word = argv[optind > 0 ? optind - 1 : 0], *next = argv[optind];
    switch (option) {
    case 'c':
        cli->config_path = optarg;
        return -1;
    case CLI_CELLS:
        cli->cells_path = optarg;
        return -1;
    case 'h':
        print_help(cli);
        return 0;
    case 'V':
        printf("postdate %s\n", version_string);
        return 0;
    case ':':
        return cli_usage(cli, "%s needs a value", word);
    default:
        if (optopt > ' ' && optopt < 0x7f && next != NULL && next[0] == '-' && next[1] != '-' &&
            strchr(next + 1, optopt) != NULL)
            return cli_usage(cli, "unknown option -%c in %s", optopt, next);
        if (optopt > ' ' && optopt < 0x7f && word[0] == '-' && word[1] != '-')
            return cli_usage(cli, "unknown option -%c", optopt);
        if (optopt > ' ')
            return cli_usage(cli, "%s takes no value", word);
        char options[40 * CLI_ROWS_MAX] = "--config --cells --help --version", near[40];
        size_t used = strlen(options);
        for (size_t i = 0; i < cli->row_count; i++)
            if (cli->rows[i]->name != NULL)
                used += (size_t)snprintf(options + used, sizeof options - used, " --%s", cli->rows[i]->name);
        if (nearest_word(word, options, near, sizeof near))
            return cli_usage(cli, "unknown option %s: did you mean %s?", word, near);
        return cli_usage(cli, "unknown option %s", word);
    }
}

static int getopt_value(const struct cli *cli, size_t row)
{
    return cli->rows[row]->letter != '\0' ? cli->rows[row]->letter : LONG_ONLY + (int)row;
}

/* -1: go on; else the exit code. */
static int take_option(struct cli *cli, int option, char **argv, void *order)
{
    for (size_t i = 0; i < cli->row_count; i++) {
        const struct cli_option *o = cli->rows[i];
        if (o->name == NULL || getopt_value(cli, i) != option)
            continue;
        int code = o->take != NULL ? o->take(cli, o, (char *)order + o->offset, optarg) : 0;
        cli->given[i] = true;
        return code == 0 ? -1 : code;
    }
    return cli_common_option(cli, option, argv);
}

/* -1: go on; else the exit code. */
static int read_options(struct cli *cli, int argc, char **argv, void *order)
{
    static const struct option common[] = {CLI_LONG};
    struct option longs[CLI_ROWS_MAX + sizeof common / sizeof common[0]];
    char letters[2 * CLI_ROWS_MAX + sizeof CLI_SHORT] = CLI_SHORT;
    size_t count = 0, used = strlen(letters);
    int option, code = -1;
    for (size_t i = 0; i < cli->row_count; i++) {
        const struct cli_option *o = cli->rows[i];
        if (o->name == NULL)
            continue;
        longs[count++] = (struct option){o->name, o->value != NULL, NULL, getopt_value(cli, i)};
        if (o->letter != '\0')
            used += (size_t)snprintf(letters + used, sizeof letters - used, "%c%s", o->letter,
                                     o->value != NULL ? ":" : "");
    }
    memcpy(longs + count, common, sizeof common);
    while (code < 0 && (option = getopt_long(argc, argv, letters, longs, NULL)) != -1)
        code = take_option(cli, option, argv, order);
    return code;
}

/* The first argument must be a verb, and the others fit it. 0 or the exit code. */
static int find_verb(struct cli *cli)
{
    const char *word = cli->word_count > 0 ? cli->words[0] : "";
    char verbs[160] = "";
    size_t used = 0;
    const struct cli_verb *found = NULL;
    for (const struct cli_verb *v = cli->command->verbs; v->name != NULL; v++) {
        if (strcmp(word, v->name) == 0)
            found = v;
        used += (size_t)snprintf(verbs + used, sizeof verbs - used, "%s ", v->name);
    }
    if (found == NULL)
        return cli_unknown(cli, word, verbs, cli->command->choices);
    cli->verb = found;
    cli->words++;
    cli->word_count--;
    for (size_t i = 0; i < cli->row_count; i++) {
        const struct cli_option *o = cli->rows[i];
        if (cli->given[i] && o->of != NULL && !has_word(o->of, found->name))
            return cli_usage(cli, "%s has no option --%s: it is an option of %s", found->name, o->name,
                             o->of);
    }
    if (cli->word_count >= found->least && cli->word_count <= found->most)
        return 0;
    return found->wrong != NULL ? cli_usage(cli, "%s: %s", found->name, found->wrong)
                                : cli_usage(cli, "unexpected argument \"%s\"", cli->words[found->most]);
}

enum cli_cells cli_cells_of(const struct cli *cli)
{
    return cli->verb != NULL ? cli->verb->cells : cli->command->cells;
}

static int check_words(struct cli *cli)
{
    if (cli->command->verbs != NULL)
        return find_verb(cli);
    if (cli->word_count > 0 && !cli->command->takes_words)
        return cli_usage(cli, "unexpected argument \"%s\"", cli->words[0]);
    return 0;
}

static int run_words(struct cli *cli, void *order)
{
    int code = check_words(cli);
    if (code != 0)
        return code;
    if (cli->cells_path != NULL && cli->cell == NULL)
        return CLI_ASK_CELLS;
    if (cli->only_word > 0) {
        cli->words += cli->only_word - 1;
        cli->word_count = 1;
    }
    if (cli->command->check != NULL)
        code = cli->command->check(cli, order);
    if (code == 0 && cli->command->opens)
        code = cli_open(cli, CLI_SCHEMA_CURRENT);
    if (code != 0)
        return code;
    return cli->verb != NULL ? cli->verb->run(cli, order) : cli->command->run(cli, order);
}

/* Of the run before. */
static void forget_words(struct cli *cli)
{
    optind = 0; /* starts getopt afresh */
    cli->verb = NULL;
    cli->row_count = 0;
    cli->time_count = 0;
    memset(cli->given, 0, sizeof cli->given);
}

int cli_run_once(struct cli *cli, int argc, char **argv)
{
    const struct command *c = cli->command;
    void *order = calloc(1, c->order_size);
    if (order == NULL)
        return cli_no_memory(cli);
    forget_words(cli);
    arena_init(&cli->arena, MEMORY_MAX);
    if (c->initial != NULL)
        memcpy(order, c->initial, c->order_size);
    collect_rows(cli);
    int code = read_options(cli, argc, argv, order);
    if (code < 0) {
        cli->word_count = argc - optind;
        cli->words = argv + optind;
        code = run_words(cli, order);
    }
    if (c->close != NULL)
        c->close(order);
    arena_free(&cli->arena);
    free(order);
    return code;
}

bool cli_gave(const struct cli *cli, const char *names)
{
    for (size_t i = 0; i < cli->row_count; i++)
        if (cli->given[i] && cli->rows[i]->name != NULL && has_word(names, cli->rows[i]->name))
            return true;
    return false;
}
