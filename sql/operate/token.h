/* Tokens: names of callers with the delivery exchanges that they may use. The database keeps hashes only. */
#ifndef POSTDATE_SQL_OPERATE_TOKEN_H
#define POSTDATE_SQL_OPERATE_TOKEN_H

#include "core/base/arena.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include "core/base/hash.h"
#include "sql/connection/pg.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOKEN_COUNT_MAX 10000 /* that are not revoked: gateways keep them in memory */
#define TOKEN_EXCHANGES_MAX 100
#define TOKEN_ALL "*"     /* in place of exchanges: all of them */
#define TOKEN_NAME_MAX 64 /* bytes */

/* Which calls a token may make: `read`, those that change nothing; `operate`, all. */
enum token_role { TOKEN_OPERATE, TOKEN_READ, TOKEN_ROLE_COUNT };
/* "operate", "read". */
const char *token_role_name(enum token_role role);
/* -1: no such role. */
int token_role_parse(const char *text, enum token_role *out);

struct token_record {
    int64_t id;
    uint8_t hash[SHA256_SIZE];
    char name[TOKEN_NAME_MAX + 1];
    enum token_role role;
    struct bytes *exchanges; /* in the caller's arena, as what they point to */
    size_t exchange_count;
    int64_t created_ms, last_used_ms, revoked_ms; /* ms since 1970; -1: never */
};

/* Of the record, hash, name, role and 1 to TOKEN_EXCHANGES_MAX exchanges are stored. Committed when 0 is
 * returned. ERR_REJECT: a token of that name is there, or too many tokens. */
int token_create(struct pg *c, const struct token_record *t, struct err *e);
/* The live token of that name is revoked, for good. ERR_NOT_FOUND: there is none. */
int token_revoke(struct pg *c, const char *name, struct err *e);
/* All, in the order of their hashes, into *out (in the arena). Revoked ones only on demand. Returns their
 * number or -1. */
int token_list(struct pg *c, bool revoked_too, struct arena *a, struct token_record **out, struct err *e);

/* A number that is another one whenever tokens were created, changed or revoked. */
int token_version(struct pg *c, int64_t *out, struct err *e);
/* Notes that they are in use, to about a minute. */
int token_touch(struct pg *c, const int64_t *ids, size_t count, struct err *e);

#endif
