/* Tokens for callers over HTTP and the control queue. A token is printed once, on standard output; the
 * database stores its hash. */
#include "core/base/base64.h"
#include "core/base/buf.h"
#include "core/base/hash.h"
#include "core/base/random.h"
#include "core/message/reserved.h"
#include "gateway/cli/command.h"
#include "gateway/cli/ops/question.h"
#include "sql/operate/ask.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "pdt_"         /* so that scanners for leaked secrets know one when they see it */
#define TOKEN_RANDOM_BYTES 24 /* 192 bits; a multiple of 3, so base64 needs no padding */

struct order {
    const char *name, *role;
    json_t *exchanges; /* NULL: none */
    bool all;
};

static int take_exchange(struct cli *cli, const struct cli_option *option, void *at, const char *text)
{
    struct order *o = at;
    struct bytes name = bytes_of_str(text);
    char shown[80];
    (void)option;
    bytes_printable(name, shown, sizeof shown);
    if (json_array_size(o->exchanges) == TOKEN_EXCHANGES_MAX)
        return cli_usage(cli, "--exchange: allowed are up to %d", TOKEN_EXCHANGES_MAX);
    if (name.len > 255 || !bytes_is_text(name))
        return cli_usage(cli, "--exchange: \"%s\" is no exchange: allowed are up to 255 bytes of UTF-8",
                         shown);
    if (strchr(text, '*') != NULL && strcmp(text, TOKEN_ALL) != 0)
        return cli_usage(cli,
                         "--exchange: \"%s\": name each exchange, * is no wildcard here (alone, it is "
                         "all exchanges)",
                         shown);
    if (o->exchanges == NULL)
        o->exchanges = json_array();
    return json_array_append_new(o->exchanges, json_string(text)) == 0 ? 0 : cli_no_memory(cli);
}

static bool is_name(const char *name)
{
    struct bytes v = bytes_of_str(name);
    bool fine = v.len >= 1 && v.len <= TOKEN_NAME_MAX && bytes_is_text(v);
    for (size_t i = 0; i < v.len && fine; i++)
        fine = v.data[i] >= ' ' && v.data[i] != 0x7f;
    return fine;
}

/* "pdt_" and 32 characters of base64url. */
static int make_token(struct buf *out)
{
    uint8_t bytes[TOKEN_RANDOM_BYTES];
    random_fill(bytes, sizeof bytes);
    buf_put_str(out, PREFIX);
    base64_encode(bytes_of(bytes, sizeof bytes), out);
    for (size_t i = 0; i < out->len; i++)
        out->data[i] = out->data[i] == '+' ? '-' : out->data[i] == '/' ? '_' : out->data[i];
    return out->failed ? -1 : 0;
}

static int check(struct cli *cli, void *order)
{
    struct order *o = order;
    size_t i;
    const json_t *exchange;
    if (strcmp(cli->verb->name, "create") != 0)
        return 0;
    if (o->exchanges == NULL)
        return cli_usage(cli, "create: name the delivery exchanges that the token may use, with --exchange");
    if (o->name != NULL && !is_name(o->name))
        return cli_usage(cli, "a token's name has 1 to %d bytes of text without control characters",
                         TOKEN_NAME_MAX);
    if (!bytes_is_among(bytes_of_str(o->role), "read operate"))
        return cli_usage(cli, "--role: \"%s\" is none: allowed are read and operate", o->role);
    /* Through these exchanges a message could reach queues beyond the token's exchanges. */
    int code = cli_load_config(cli);
    const struct accept_rules rules = config_accept_rules(&cli->config);
    json_array_foreach(o->exchanges, i, exchange)
    {
        if (code == 0 && reserved_exchange(bytes_of_str(json_string_value(exchange)), &rules))
            code =
                cli_usage(cli, "--exchange: \"%.80s\" is the gateway's own: allowed are delivery exchanges",
                          json_string_value(exchange));
    }
    return code;
}

/* Releases the argument. 0, or the exit code. */
static int ask(struct cli *cli, const char *operation, const char *name, json_t *argument,
               struct ask_answer *out)
{
    char *text = json_dumps(argument, JSON_COMPACT);
    const struct ask_request q = {.noun = ASK_TOKEN,
                                  .operation = operation,
                                  .reads = strcmp(operation, "list") == 0,
                                  .name = bytes_of_str(name),
                                  .argument = bytes_of_str(text != NULL ? text : ""),
                                  .via = ""};
    struct err e;
    int code = text == NULL                                       ? cli_no_memory(cli)
               : ask_noun(cli->pg, &q, &cli->arena, out, &e) != 0 ? cli_fail(cli, &e)
                                                                  : 0;
    if (!q.reads)
        cli_changed(cli, code == 0);
    free(text);
    json_decref(argument);
    return code;
}

static int create_token(struct cli *cli, void *order)
{
    struct order *o = order;
    uint8_t hash[SHA256_SIZE];
    char made[20];
    struct buf token, hash_text;
    struct ask_answer answer;
    const char *name = o->name != NULL ? o->name : made;
    snprintf(made, sizeof made, "token-%08x", (unsigned)random_u32());
    buf_init(&token, 256);
    buf_init(&hash_text, 256);
    int code = make_token(&token) != 0 || !sha256(buf_bytes(&token), hash) ? cli_no_memory(cli) : 0;
    base64_encode(bytes_of(hash, sizeof hash), &hash_text);
    if (code == 0)
        code = ask(cli, "create", name,
                   json_pack("{s:s%, s:O, s:s}", "hash", hash_text.data, hash_text.len, "exchanges",
                             o->exchanges, "role", o->role),
                   &answer);
    if (code == 0) {
        printf("%.*s\n", (int)token.len, (const char *)token.data);
        fflush(stdout);
        cli_say("token \"%s\" is created; this is the only time that it is shown", name);
        if (!cli->config.http.tokens)
            fputs("postdate: tokens are not required yet: http.tokens is off in this configuration\n",
                  stderr);
    }
    buf_free(&hash_text);
    buf_free(&token);
    return code;
}

static int revoke_tokens(struct cli *cli, void *order)
{
    struct ask_answer answer;
    int code = 0;
    (void)order;
    for (int i = 0; i < cli->word_count && code == 0; i++) {
        code = ask(cli, "revoke", cli->words[i], json_object(), &answer);
        if (code == 0)
            cli_say("token \"%s\" is revoked", cli->words[i]);
    }
    return code;
}

static const struct sheet_cell columns[] = {
    {"NAME", 20, "{name}", .most = 20},
    {"ROLE", 7, .text = "{role}"},
    {"CREATED", 16, .text = "{created_at:when}"},
    {"LAST USED", 16, .text = "{revoked_at=revoked}||{last_used_at:when}||never"},
    {"EXCHANGES", 0, "{exchanges:name}", .most = 17},
    {0},
};

static int list_tokens(struct cli *cli, void *order)
{
    const struct order *o = order;
    struct ask_answer answer;
    int code = ask(cli, "list", "", json_pack("{s:b}", "all", o->all), &answer);
    if (code != 0)
        return code;
    json_t *tokens = json_loadb((const char *)answer.text.data, answer.text.len, 0, NULL);
    if (json_array_size(tokens) > 0)
        code = cli_print_list(cli, columns, tokens);
    else if (tokens == NULL)
        code = cli_no_memory(cli);
    else if (!cli_gave(cli, "json"))
        fputs("postdate: there are no tokens\n", stderr);
    json_decref(tokens);
    return code;
}

static void close_order(void *order)
{
    struct order *o = order;
    json_decref(o->exchanges);
}

static const struct cli_option options[] = {
    {"exchange", "E",
     "a delivery exchange that the token may use; may be repeated;" CLI_HELP_LINE
     "'*': all of them, and changes of retry policies and rates",
     take_exchange, .of = "create"},
    {"name", "N", "name of the token (default: generated)", CLI_TAKE(text, order, name), .of = "create"},
    {"role", "ROLE", "read: look-ups and dry runs only; operate: everything (default)",
     CLI_TAKE(text, order, role), .of = "create", .words = "read operate"},
    {"all", NULL, "revoked tokens, too", CLI_TAKE(flag, order, all), .of = "list"},
    {"json", NULL, "one JSON object per line", .of = "list"},
    {0},
};

static const struct cli_verb verbs[] = {
    {"create", .run = create_token},
    {"list", .run = list_tokens},
    {"revoke", .run = revoke_tokens, 1, INT_MAX, "give the names of tokens (see `postdate token list`)"},
    {0},
};

const struct command command_token = {
    .name = "token",
    .synopsis =
        "create --exchange E... [--name N] [--role read|operate] | list [--all] [--json] | revoke NAME...",
    .summary = "Create, list and revoke tokens for HTTP and the control queue",
    .options = options,
    .verbs = verbs,
    .check = check,
    .opens = true,
    .choices = "write create, list or revoke",
    .order_size = sizeof(struct order),
    .initial = &(const struct order){.role = "operate"},
    .close = close_order,
};
