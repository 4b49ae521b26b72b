/* The command line `postdate`: works on the database directly, with or without a running gateway. */
#include "core/base/bytes.h"
#include "gateway/cli/command.h"
#include "gateway/config/secrets.h"
#include "gateway/json/json_memory.h"

#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* By name. */
static const struct command *const commands[] = {
    &command_cancel,       &command_dead,     &command_doctor,   &command_drop_topology, &command_fail,
    &command_feed,         &command_forecast, &command_import,   &command_list,          &command_migrate,
    &command_rate,         &command_recur,    &command_rejected, &command_reschedule,    &command_retry,
    &command_retry_policy, &command_schedule, &command_show,     &command_status,        &command_token,
};
#define COMMAND_COUNT (sizeof commands / sizeof commands[0])

static void print_help(FILE *out)
{
    fputs("Usage: postdate [-c FILE] COMMAND [ARGUMENTS]\n\n"
          "Delayed messages for RabbitMQ, stored in PostgreSQL.\n\nCommands:\n",
          out);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  %-13s %s\n", commands[i]->name, commands[i]->summary);
    fputs("\nOptions:\n"
          "  -c, --config FILE   configuration (else $POSTDATE_CONFIG, else /etc/postdate/postdate.conf)\n"
          "      --cells FILE    several databases: look-ups in all of them (else $POSTDATE_CELLS)\n"
          "  -h, --help          this text; `postdate COMMAND --help` for one command\n"
          "      --version       the version\n"
          "      --print-commands  all commands and their options, for completion in a shell\n\n"
          "Exit: 0 done, 1 some failed, 64 usage, 65 bad data, 66 not found, 69 cannot connect,\n"
          "70 internal error, 75 busy, try again, 77 permission, 78 configuration or schema.\n",
          out);
}

static const char *command_names(void)
{
    static char names[COMMAND_COUNT * 20];
    size_t used = 0;
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s ", commands[i]->name);
    return names;
}

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    }
    return NULL;
}

static int run_command(struct cli *cli, int argc, char **argv)
{
    static const struct option options[] = {{"print-commands", no_argument, NULL, 'P'}, CLI_LONG};
    int option;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "+" CLI_SHORT, options, NULL)) != -1) {
        if (option == 'h') {
            print_help(stdout);
            return 0;
        }
        if (option == 'P') {
            for (size_t i = 0; i < COMMAND_COUNT; i++) {
                cli->command = commands[i];
                cli_describe(cli);
            }
            return 0;
        }
        int code = cli_common_option(cli, option, argv);
        if (code >= 0)
            return code;
    }
    if (optind == argc) {
        print_help(stderr);
        return 64;
    }
    if (strcmp(argv[optind], "help") == 0) {
        static char help[] = "--help";
        if (optind + 1 == argc) {
            print_help(stdout);
            return 0;
        }
        argv[optind] = argv[optind + 1]; /* as `postdate COMMAND --help` */
        argv[optind + 1] = help;
    }
    cli->command = find_command(argv[optind]);
    if (cli->command == NULL) {
        const char *word = argv[optind];
        char near[40];
        if (nearest_word(word, command_names(), near, sizeof near))
            return cli_usage(cli, "unknown command \"%s\": did you mean \"%s\"?", word, near);
        return cli_usage(cli, "unknown command \"%s\"", word);
    }
    return cli_run(cli, argc - optind, argv + optind);
}

int main(int argc, char **argv)
{
    struct cli cli = {0};
    secrets_allow_dumps(false);
    signal(SIGPIPE, SIG_IGN);
    pg_set_defaults();
    json_memory_open();
    json_memory_begin();     /* for the whole run: nothing incomplete is printed, or scheduled */
    setlocale(LC_CTYPE, ""); /* for text.h; numbers and messages stay as they are */
    int code = run_command(&cli, argc, argv);
    pg_close(cli.pg);
    if (cli.has_config)
        config_free(&cli.config);
    cells_free(&cli.cells);
    /* Output that did not arrive must not look like success; a reader that left is no news. */
    int error = cli_output_error();
    if (fflush(stdout) != 0 && error == 0)
        error = errno;
    if (error == 0)
        error = cli_output_error();
    if (error == 0)
        return code;
    if (error != EPIPE)
        fprintf(stderr, "postdate: cannot write the output: %s\n", strerror(error));
    return code != 0 ? code : 1;
}
