#include "gateway/cli/cli.h"
#include "sql/operate.h"
#include <stdio.h>

struct tally {
    int done, too_late, not_found;
};

static int cancel_one(struct cli *cli, struct message_id id, struct tally *tally)
{
    static const char *const answers[] = {"cancelled", "too late", "not found"};
    char text[MESSAGE_ID_TEXT_SIZE];
    enum operate_answer result;
    struct err e;
    if (operate_cancel(cli->pg, NULL, id, &result, NULL, &e) != 0)
        return cli_fail(&e);
    printf("%s %s\n", message_id_format(id, text), answers[result]);
    tally->done += result == OPERATE_DONE;
    tally->too_late += result == OPERATE_TOO_LATE;
    tally->not_found += result == OPERATE_NOT_FOUND;
    return 0;
}

static int exit_code(const struct tally *t)
{
    if (t->too_late == 0 && t->not_found == 0)
        return 0;
    return t->not_found == 1 && t->too_late == 0 && t->done == 0 ? 66 : 1;
}

/* Ids are checked before anything is cancelled. */
static int cancel_ids(struct cli *cli, int count, char **ids)
{
    struct tally tally = {0};
    struct message_id id;
    int code = 0;
    for (int i = 0; i < count && code == 0; i++)
        code = cli_parse_id(cli, ids[i], &id);
    if (code == 0)
        code = cli_open(cli, CLI_SCHEMA_CURRENT);
    for (int i = 0; i < count && code == 0; i++) {
        code = cli_parse_id(cli, ids[i], &id);
        if (code == 0)
            code = cancel_one(cli, id, &tally);
    }
    return code != 0 ? code : exit_code(&tally);
}

static int cancel_key(struct cli *cli, const char *exchange, const char *key)
{
    struct tally tally = {0};
    struct message_id id;
    int code = cli_open(cli, CLI_SCHEMA_CURRENT);
    if (code == 0)
        code = cli_find_key(cli, exchange, key, &id);
    if (code == 0)
        code = cancel_one(cli, id, &tally);
    return code != 0 ? code : exit_code(&tally);
}

static int run(struct cli *cli, int argc, char **argv)
{
    static const struct option options[] = {
        {"key", required_argument, NULL, 'K'}, {"exchange", required_argument, NULL, 'E'}, CLI_LONG};
    const char *key = NULL, *exchange = NULL;
    int option, code;
    while ((option = getopt_long(argc, argv, CLI_SHORT, options, NULL)) != -1) {
        if (option == 'K')
            key = optarg;
        else if (option == 'E')
            exchange = optarg;
        else if ((code = cli_common_option(cli, option, argv)) >= 0)
            return code;
    }
    if ((key != NULL) == (optind < argc))
        return cli_usage(cli, "give message ids, or --key KEY");
    if (exchange != NULL && key == NULL)
        return cli_usage(cli, "--exchange belongs to --key: an id needs none");
    return key != NULL ? cancel_key(cli, exchange, key) : cancel_ids(cli, argc - optind, argv + optind);
}

const struct command command_cancel = {
    .name = "cancel",
    .synopsis = "ID... | --key KEY [--exchange E]",
    .summary = "Cancel messages; each answer is a line: cancelled, too late or not found",
    .help = "      --key KEY       the message that this key names\n"
            "      --exchange E    delivery exchange of the key (default: delivery.exchange)\n",
    .run = run,
};
