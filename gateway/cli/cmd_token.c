/* Tokens for callers over HTTP and the control queue. A token is shown once, on standard output; what is kept
 * is its hash. */
#include "core/base/base64.h"
#include "core/base/buf.h"
#include "core/base/random.h"
#include "core/message/reserved.h"
#include "gateway/cli/command.h"
#include "gateway/json/json_message.h"
#include "sql/operate/token.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "pdt_"         /* so that scanners for leaked secrets know one when they see it */
#define TOKEN_RANDOM_BYTES 24 /* 192 bits; a multiple of 3, so base64 needs no padding */

struct order {
    const char *name, *role;
    struct bytes exchanges[TOKEN_EXCHANGES_MAX];
    size_t count;
    bool json, all;
    struct token_record token; /* what is created */
};

static int take_exchange(struct cli *cli, const struct cli_option *option, void *at, const char *text)
{
    struct order *o = at;
    struct bytes name = bytes_of_str(text);
    char shown[80];
    (void)option;
    bytes_printable(name, shown, sizeof shown);
    if (o->count == TOKEN_EXCHANGES_MAX)
        return cli_usage(cli, "--exchange: allowed are up to %d", TOKEN_EXCHANGES_MAX);
    if (name.len > 255 || !bytes_is_text(name))
        return cli_usage(cli, "--exchange: \"%s\" is no exchange: allowed are up to 255 bytes of UTF-8",
                         shown);
    if (strchr(text, '*') != NULL && strcmp(text, TOKEN_ALL) != 0)
        return cli_usage(cli,
                         "--exchange: \"%s\": name each exchange, * is no wildcard here (alone, it is "
                         "all exchanges)",
                         shown);
    o->exchanges[o->count++] = name;
    return 0;
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
    if (strcmp(cli->verb->name, "create") != 0)
        return 0;
    if (o->count == 0)
        return cli_usage(cli, "create: name the delivery exchanges that the token may use, with --exchange");
    if (o->name != NULL && !is_name(o->name))
        return cli_usage(cli, "a token's name has 1 to %d bytes of text without control characters",
                         TOKEN_NAME_MAX);
    if (o->role != NULL && token_role_parse(o->role, &o->token.role) != 0)
        return cli_usage(cli, "--role: \"%s\" is none: allowed are read and operate", o->role);
    /* Through these a message could reach what the token does not list. */
    int code = cli_load_config(cli);
    const struct accept_rules rules = config_accept_rules(&cli->config);
    for (size_t i = 0; i < o->count && code == 0; i++)
        if (reserved_exchange(o->exchanges[i], &rules))
            code =
                cli_usage(cli, "--exchange: \"%.80s\" is the gateway's own: allowed are delivery exchanges",
                          (const char *)o->exchanges[i].data);
    return code;
}

static int create_token(struct cli *cli, void *order)
{
    struct order *o = order;
    struct token_record *t = &o->token;
    struct buf token;
    struct err e = {0};
    if (o->name != NULL)
        memcpy(t->name, o->name, strlen(o->name) + 1);
    else
        snprintf(t->name, sizeof t->name, "token-%08x", (unsigned)random_u32());
    t->exchange_count = o->count;
    t->exchanges = o->exchanges;
    buf_init(&token, 256);
    if (make_token(&token) != 0 || !sha256(buf_bytes(&token), t->hash))
        err_set(&e, ERR_BUG, "out of memory");
    if (e.kind == ERR_NONE && token_create(cli->pg, t, &e) == 0) {
        printf("%.*s\n", (int)token.len, (const char *)token.data);
        fflush(stdout);
        cli_changed(cli, 1);
        cli_say("token \"%s\" is created; this is the only time that it is shown", t->name);
        if (!cli->config.http.tokens)
            fputs("postdate: tokens are not required yet: http.tokens is off in this configuration\n",
                  stderr);
    }
    buf_free(&token);
    return e.kind == ERR_NONE ? 0 : cli_fail(&e);
}

static int revoke_tokens(struct cli *cli, void *order)
{
    struct err e;
    (void)order;
    for (int i = 0; i < cli->word_count; i++) {
        const char *name = cli->words[i];
        int rc = token_revoke(cli->pg, name, &e);
        cli_changed(cli, rc == 0);
        if (rc != 0)
            return cli_fail(&e);
        cli_say("token \"%s\" is revoked", name);
    }
    return 0;
}

/* "orders, billing", cut to fit. */
static void print_exchanges(const struct token_record *t, size_t width)
{
    size_t used = 0;
    for (size_t i = 0; i < t->exchange_count; i++) {
        char shown[260];
        bytes_printable(t->exchanges[i], shown, sizeof shown);
        const char *text = t->exchanges[i].len > 0 ? shown : "\"\"";
        size_t len = strlen(text) + (i > 0 ? 2 : 0), room = i + 1 < t->exchange_count ? 4 : 0;
        if (used + len + room > width && i > 0) {
            printf(", ..");
            break;
        }
        printf("%s%.*s", i > 0 ? ", " : "", (int)(width - room), text);
        used += len;
    }
    putchar('\n');
}

static void print_row(const struct token_record *t, int64_t now_ms)
{
    char name[TOKEN_NAME_MAX * 4 + 1], when[CLI_WHEN_SIZE], used[CLI_WHEN_SIZE] = "never";
    bytes_printable(bytes_of_str(t->name), name, sizeof name);
    cli_format_when(t->created_ms, now_ms, when);
    if (t->revoked_ms >= 0)
        snprintf(used, sizeof used, "revoked");
    else if (t->last_used_ms >= 0)
        cli_format_when(t->last_used_ms, now_ms, used);
    printf("%-20.20s %-7s %-16s %-16s ", name, token_role_name(t->role), when, used);
    print_exchanges(t, 17);
}

static json_t *make_value(const struct token_record *t)
{
    json_t *exchanges = json_array();
    for (size_t i = 0; i < t->exchange_count; i++)
        json_array_append_new(exchanges, json_text_value(t->exchanges[i]));
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "name", t->name, "role", token_role_name(t->role),
                     "exchanges", exchanges, "created_at", json_time_value(t->created_ms), "last_used_at",
                     json_time_value(t->last_used_ms), "revoked_at", json_time_value(t->revoked_ms));
}

static int compare_age(const void *a, const void *b)
{
    const struct token_record *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static int list_tokens(struct cli *cli, void *order)
{
    const struct order *o = order;
    struct token_record *tokens = NULL;
    struct err e;
    int code = 0, n = token_list(cli->pg, o->all, &cli->arena, &tokens, &e);
    if (n < 0)
        return cli_fail(&e);
    if (n > 0)
        qsort(tokens, (size_t)n, sizeof *tokens, compare_age);
    if (n > 0 && !o->json)
        printf("%-20s %-7s %-16s %-16s %s\n", "NAME", "ROLE", "CREATED", "LAST USED", "EXCHANGES");
    if (n == 0 && !o->json)
        fputs("postdate: there are no tokens\n", stderr);
    for (int i = 0; i < n && code == 0 && cli_output_error() == 0; i++) {
        if (o->json)
            code = cli_print_json(make_value(&tokens[i]), JSON_COMPACT);
        else
            print_row(&tokens[i], cli->now_ms);
    }
    return code;
}

static const struct cli_option options[] = {
    {"exchange", "E",
     "a delivery exchange that the token may use; may be repeated;" CLI_HELP_LINE
     "'*' is all of them, and retry policies",
     take_exchange, .of = "create"},
    {"name", "N", "name of the token (default: generated)", CLI_TAKE(text, order, name), .of = "create"},
    {"role", "ROLE", "read: look-ups and dry runs only; operate: everything (default)",
     CLI_TAKE(text, order, role), .of = "create", .words = "read operate"},
    {"all", NULL, "revoked tokens, too", CLI_TAKE(flag, order, all), .of = "list"},
    {"json", NULL, "one JSON object per line", CLI_TAKE(flag, order, json), .of = "list"},
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
    .initial = &(const struct order){.token = {.role = TOKEN_OPERATE}},
};
