#include "gateway/cli/filter.h"
#include "core/base/bytes.h"

#include <stdio.h>
#include <string.h>

#define STATES                                                                                               \
    "scheduled claimed handed delivered cancelled superseded failed expired " LOOKUP_RETRYING                \
    " " LOOKUP_WAITING

static int take_state(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    struct cli_filter *f = at;
    char near[40];
    (void)o;
    bool retrying = strcmp(text, LOOKUP_RETRYING) == 0, waiting = strcmp(text, LOOKUP_WAITING) == 0;
    f->filter.retrying |= retrying;
    f->filter.waiting |= waiting;
    if (retrying || waiting)
        return 0;
    f->filter.has_state = true;
    if (message_state_parse(text, &f->filter.state) == 0)
        return 0;
    if (nearest_word(text, STATES, near, sizeof near))
        return cli_usage(cli, "--state: \"%s\" is not a state: did you mean \"%s\"?", text, near);
    return cli_usage(
        cli,
        "--state: \"%s\" is not a state: write scheduled, claimed, handed, delivered, cancelled, superseded, "
        "failed, expired, " LOOKUP_RETRYING " or " LOOKUP_WAITING,
        text);
}

static int take_routing_key(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    struct cli_filter *f = at;
    f->filter.globs = true;
    return cli_take_bytes(cli, o, &f->filter.routing_key, text);
}

const struct cli_option cli_filter_options[] = {
    {"state", "S",
     "scheduled, claimed, handed, delivered, cancelled, superseded, failed," CLI_HELP_LINE
     "expired; retrying: an attempt failed, and another follows;" CLI_HELP_LINE
     "waiting: scheduled, claimed or handed",
     .take = take_state,
     .words = "scheduled claimed handed delivered cancelled superseded failed expired retrying waiting"},
    {"due-after", "T", "due at or after this time (2026-11-22T08:00:00Z, -1d, 'today 09:00')",
     CLI_TAKE(time, cli_filter, filter.due_after_ms)},
    {"due-before", "T", "due before this time", CLI_TAKE(time, cli_filter, filter.due_before_ms)},
    {"exchange", "E", "with this delivery exchange", CLI_TAKE(bytes, cli_filter, filter.exchange)},
    {"routing-key", "K", "with this routing key; * is any run of characters", take_routing_key,
     .letter = 'k'},
    {0},
};
const struct cli_option cli_operate_options[] = {
    {"key", "KEY", "the message that this key names in --exchange (default: delivery.exchange)",
     CLI_TAKE(bytes, cli_filter, filter.key)},
    {"dry-run", NULL, "with filters: only count matching messages", CLI_TAKE(flag, cli_filter, dry_run)},
    {0},
};

struct tally {
    int done, refused, not_found, busy;
};

static int operate_id(struct cli *cli, const struct cli_operation *op, struct message_id id,
                      struct tally *tally)
{
    static const char *const words[] = {"",          "too late",
                                        "not found", "not failed",
                                        "key taken", "busy: a gateway is publishing it, try again"};
    char text[MESSAGE_ID_TEXT_SIZE], now[MESSAGE_ID_TEXT_SIZE];
    const struct operate_request q = {.kind = op->kind, .id = id, .due = op->due};
    struct operate_result result;
    struct err e;
    if (operate_message(cli->pg, NULL, &q, &result, &e) != 0)
        return cli_fail(cli, &e);
    if (result.answer == OPERATE_NOT_FOUND && cli->asking.others_follow) {
        err_set(&e, ERR_NOT_FOUND, "not found");
        return cli_fail(cli, &e);
    }
    cli_changed(cli, result.answer == OPERATE_DONE);
    const char *word = result.answer == OPERATE_DONE ? op->done : words[result.answer];
    if (op->moves && result.answer == OPERATE_DONE)
        printf("%s %s %s\n", message_id_format(id, text), word, message_id_format(result.id, now));
    else
        printf("%s %s\n", message_id_format(id, text), word);
    tally->done += result.answer == OPERATE_DONE;
    tally->busy += result.answer == OPERATE_BUSY;
    tally->not_found += result.answer == OPERATE_NOT_FOUND;
    tally->refused += result.answer != OPERATE_DONE && result.answer != OPERATE_NOT_FOUND;
    return 0;
}

static int exit_code(const struct tally *t)
{
    if (t->refused == 0 && t->not_found == 0)
        return 0;
    if (t->busy > 0 && t->busy == t->refused && t->not_found == 0)
        return 75;
    return t->not_found == 1 && t->refused == 0 && t->done == 0 ? 66 : 1;
}

static int operate_ids(struct cli *cli, const struct cli_operation *op)
{
    struct tally tally = {0};
    struct message_id id;
    int code = 0;
    for (int i = 0; i < cli->word_count && code == 0; i++) {
        code = cli_parse_id(cli, cli->words[i], &id);
        if (code == 0)
            code = operate_id(cli, op, id, &tally);
    }
    return code != 0 ? code : exit_code(&tally);
}

static int operate_key(struct cli *cli, const struct cli_operation *op, const struct lookup_filter *f)
{
    struct tally tally = {0};
    struct message_id id;
    struct err e;
    if (operate_find_key(cli->pg, NULL, f->exchange, f->key, &id, &e) != 0)
        return cli_fail(cli, &e);
    int code = operate_id(cli, op, id, &tally);
    return code != 0 ? code : exit_code(&tally);
}

/* "99 of 100 cancelled" leaves a question open. */
static void explain_rest(const struct cli_operation *op, int64_t left)
{
    if (left > 0)
        fprintf(stderr, "postdate: left out %lld: %s\n", (long long)left, op->left_out);
}

static int operate_filters(struct cli *cli, const struct cli_operation *op, const struct cli_filter *f)
{
    struct operate_bulk bulk = {
        .kind = op->kind, .filter = &f->filter, .shift_ms = op->shift_ms, .dry_run = f->dry_run};
    struct operate_count count;
    struct message_id ignored;
    struct err e;
    if (f->filter.key.data != NULL &&
        operate_find_key(cli->pg, NULL, f->filter.exchange, f->filter.key, &ignored, &e) != 0)
        return cli_fail(cli, &e);
    int rc = operate_bulk(cli->pg, NULL, &bulk, &count, &e);
    if (!f->dry_run)
        cli_changed(cli, count.changed);
    if (rc != 0) {
        fprintf(stderr, "postdate: stopped after %lld messages\n", (long long)count.changed);
        return cli_fail(cli, &e);
    }
    if (f->dry_run) {
        printf("%s%lld would be %s\n", count.minimum ? "at least " : "", (long long)count.matched, op->done);
        return 0;
    }
    if (f->filter.key.data != NULL && count.matched == 0) {
        err_set(&e, ERR_NOT_FOUND, "no waiting or failed message has the key '%.*s'", (int)f->filter.key.len,
                (const char *)f->filter.key.data);
        return cli_fail(cli, &e);
    }
    printf("%lld of %lld %s\n", (long long)count.changed, (long long)count.matched, op->done);
    explain_rest(op, count.matched - count.changed);
    return count.changed == count.matched ? 0 : 1;
}

/* Filters were given, beside or without a key. */
static bool has_filters(const struct cli *cli, const struct cli_filter *f)
{
    return cli_gave(cli, "state due-after due-before routing-key") ||
           (f->filter.exchange.data != NULL && f->filter.key.data == NULL);
}

int cli_check_operation(struct cli *cli, const struct cli_operation *op, const struct cli_filter *f)
{
    bool filters = has_filters(cli, f);
    struct message_id ignored;
    int code = 0;
    if ((cli->word_count > 0) + (f->filter.key.data != NULL) + filters != 1)
        return cli_usage(cli, "give message ids, or --key KEY, or filters");
    if (f->dry_run && !filters && !(op->has_shift && f->filter.key.data != NULL))
        return cli_usage(cli, "--dry-run needs filters");
    if (op->moves && filters && !op->has_shift)
        return cli_usage(cli, "with filters, give --shift");
    if (op->has_shift && cli->word_count > 0)
        return cli_usage(cli, "give either --delay or --at");
    for (int i = 0; i < cli->word_count && code == 0; i++)
        code = cli_parse_id(cli, cli->words[i], &ignored);
    return code;
}

int cli_operate(struct cli *cli, const struct cli_operation *op, const struct cli_filter *f)
{
    struct cli_filter named = *f;
    bool key = f->filter.key.data != NULL;
    if (key && f->filter.exchange.data == NULL)
        named.filter.exchange = bytes_of_str(cli->config.delivery.exchange);
    /* A shift needs the present due time, so the message is looked up first. */
    if (has_filters(cli, f) || (key && op->has_shift))
        return operate_filters(cli, op, &named);
    return key ? operate_key(cli, op, &named.filter) : operate_ids(cli, op);
}
