/* Errors as values.
 *
 * A function that can fail takes a caller-owned `struct err *` as its last parameter and returns 0 or -1 (or
 * NULL). The kind tells the caller what to DO; the text, for users, is what happened: the object, the value
 * and the allowed values. Library code returns errors; only main programs and thread loops log them. */
#ifndef POSTDATE_CORE_BASE_ERR_H
#define POSTDATE_CORE_BASE_ERR_H

#include <stdbool.h>

enum err_kind {
    ERR_NONE = 0,
    ERR_AWAY,       /* a server cannot be reached, or the connection was lost: reconnect with back-off */
    ERR_LIMIT,      /* this process or machine has reached a limit that an operator can raise: as ERR_AWAY */
    ERR_BUSY,       /* connected, but blocked by a lock, a limit or an alarm: retry later */
    ERR_REJECT,     /* this input can never be accepted */
    ERR_NOT_FOUND,  /* the named thing does not exist */
    ERR_PERMISSION, /* login failed, or a privilege is missing */
    ERR_CONFIG,     /* wrong configuration, or a database schema of another version */
    ERR_USAGE,      /* the command line is wrong */
    ERR_STOPPING,   /* the program is shutting down */
    ERR_BUG,        /* out of memory, a bound exceeded, or a state that should not occur */
};

struct err {
    enum err_kind kind;
    char text[480];
};

/* Records kind and printf-style text (truncated to fit). Always returns -1, so that `return err_set(...)`
 * reads well. `e` may be NULL. */
int err_set(struct err *e, enum err_kind kind, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Puts "fmt: " in front of the text already there; keeps the kind. Returns -1. */
int err_wrap(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

void err_clear(struct err *e);

/* True if a retry may succeed (ERR_AWAY, ERR_LIMIT, ERR_BUSY). */
bool err_is_transient(const struct err *e);

/* The documented exit code of both programs for this error (sysexits.h values: 64 usage, 65 bad data,
 * 66 not found, 69 cannot connect, 75 busy or at a limit, 77 permission, 78 configuration or schema, 70
 * a bug or no memory; 1 stopping, 0 none). */
int err_exit_code(const struct err *e);

#endif
