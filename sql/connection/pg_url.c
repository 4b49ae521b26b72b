/* Addresses of databases. libpq takes them apart, but its texts quote them, and they hold passwords: what it
 * quotes is shown only where it cannot be a part of one. */
#include "sql/connection/pg_internal.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SERVICE_USER "postdate" /* as docs/install.md and the systemd unit call it */

#define ENCODING_HINT                                                                                        \
    "(not shown, it may be part of a password: in a URL, '@' is written %%40, '/' %%2F, ':' %%3A, '?' %%3F " \
    "and '%%' %%25)"

/* "user:pa/ss@host" is read as host, port, database; "user:p@ss@host" as a host "ss@host". */
struct shape {
    bool uri;
    bool at_in_path; /* an '@' behind the first '/' of an URL and before its '?' */
    bool certain;    /* no part of a password can have come into another field */
};

static struct shape look_at(const char *url)
{
    const char *authority = strstr(url, "://");
    struct shape s = {.uri = authority != NULL && strncmp(url, "postgres", 8) == 0};
    if (!s.uri)
        return (struct shape){.certain = strstr(url, "pass") == NULL};
    authority += 3;
    size_t len = strcspn(authority, "/?");
    const char *path = authority + len;
    s.at_in_path = memchr(path, '@', strcspn(path, "?")) != NULL;
    const char *at = strchr(authority, '@');
    bool has_password = memchr(authority, ':', len) != NULL;
    s.certain = !has_password || (at != NULL && at < path && strchr(at + 1, '@') == NULL);
    return s;
}

void pg_one_line(const char *text, char *out, size_t out_size)
{
    size_t n = 0;
    for (; *text && n + 2 < out_size; text++) {
        if (*text == '\n' && text[1] != '\0' && n > 0 && isalnum((unsigned char)out[n - 1]))
            out[n++] = ';';
        char ch = *text == '\n' || *text == '\t' ? ' ' : *text;
        if (ch == ' ' && n > 0 && out[n - 1] == ' ')
            continue;
        out[n++] = ch;
    }
    while (n > 0 && out[n - 1] == ' ')
        n--;
    out[n] = '\0';
}

/* One line, without what stands in quotes. */
static int refuse_url(const char *message, const struct shape *s, struct err *e)
{
    char text[300];
    pg_one_line(message, text, sizeof text);
    char *quote = strchr(text, '"');
    bool name_only = !s->uri || strncmp(text, "invalid URI query parameter", 27) == 0;
    if (quote == NULL || (s->certain && name_only))
        return err_set(e, ERR_CONFIG, "postgres.url: %s", text);
    if (!s->uri)
        return err_set(
            e, ERR_CONFIG,
            "postgres.url: not a list of name=value (not shown, it may be part of a password: a value "
            "with blanks is written 'in quotes', with \\' for a quote)");
    while (quote > text && (quote[-1] == ' ' || quote[-1] == ':'))
        quote--;
    *quote = '\0';
    return err_set(e, ERR_CONFIG, "postgres.url: %s " ENCODING_HINT, text);
}

static int check_fields(const PQconninfoOption *options, const struct shape *s, struct err *e)
{
    for (const PQconninfoOption *o = options; o->keyword; o++) {
        const char *value = o->val ? o->val : "";
        bool host = strcmp(o->keyword, "host") == 0 || strcmp(o->keyword, "hostaddr") == 0;
        /* "@name" is a socket without a file. */
        if (host && *value != '\0' && strchr(value + 1, '@') != NULL)
            return err_set(e, ERR_CONFIG, "postgres.url: no host name has an '@' " ENCODING_HINT);
        if (strcmp(o->keyword, "port") == 0 && value[strspn(value, "0123456789, ")] != '\0')
            return err_set(e, ERR_CONFIG, "postgres.url: the port must be a number " ENCODING_HINT);
        if (strcmp(o->keyword, "dbname") == 0 && s->at_in_path)
            return err_set(e, ERR_CONFIG,
                           "postgres.url: there is an '@' behind the host's '/' " ENCODING_HINT);
    }
    return 0;
}

PQconninfoOption *pg_url_parse(const char *url, struct err *e)
{
    const struct shape shape = look_at(url);
    char *message = NULL;
    PQconninfoOption *options = PQconninfoParse(url, &message);
    if (!options) {
        refuse_url(message ? message : "out of memory", &shape, e);
        PQfreemem(message);
        return NULL;
    }
    if (check_fields(options, &shape, e) == 0)
        return options;
    PQconninfoFree(options);
    return NULL;
}

int pg_url_check(const char *url, struct err *e)
{
    PQconninfoOption *options = pg_url_parse(url, e);
    PQconninfoFree(options);
    return options ? 0 : -1;
}

const char *pg_option(const PQconninfoOption *options, const char *keyword)
{
    for (const PQconninfoOption *o = options; o && o->keyword; o++)
        if (strcmp(o->keyword, keyword) == 0)
            return o->val ? o->val : "";
    return "";
}

/* Itself, or by naming a service. */
static bool names_user(const char *url)
{
    PQconninfoOption *options = PQconninfoParse(url, NULL);
    bool found = *pg_option(options, "user") || *pg_option(options, "service");
    PQconninfoFree(options);
    return found;
}

/* The first that is there, and not empty. */
static const char *first_of(const char *a, const char *b, const char *c)
{
    return a && *a ? a : b && *b ? b : c;
}

void pg_url_names(const char *url, const char *default_user, char role[PG_NAME_SIZE],
                  char database[PG_NAME_SIZE])
{
    PQconninfoOption *options = PQconninfoParse(url, NULL);
    snprintf(role, PG_NAME_SIZE, "%s", first_of(pg_option(options, "user"), getenv("PGUSER"), default_user));
    snprintf(database, PG_NAME_SIZE, "%s",
             first_of(pg_option(options, "dbname"), getenv("PGDATABASE"), role));
    PQconninfoFree(options);
}

const struct passwd *pg_url_service_user(const char *url)
{
    const char *name = getenv("PGUSER");
    bool named = (name != NULL && *name != '\0') || names_user(url);
    return geteuid() == 0 && !named ? getpwnam(SERVICE_USER) : NULL;
}

static bool is_loopback(const char *address)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, address, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, address, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

/* Is the server's certificate checked against its authority and its name? */
static bool verifies_server(PGconn *conn)
{
    PQconninfoOption *options = PQconninfo(conn);
    bool full = strcmp(pg_option(options, "sslmode"), "verify-full") == 0;
    PQconninfoFree(options);
    return full;
}

enum pg_wire pg_wire(const struct pg *c)
{
    const char *host = PQhost(c->conn), *address = PQhostaddr(c->conn);
    if (!host || *host == '\0' || *host == '/' || *host == '@' || (address && is_loopback(address)))
        return PG_WIRE_LOCAL;
    if (PQgssEncInUse(c->conn) || (PQsslInUse(c->conn) && verifies_server(c->conn)))
        return PG_WIRE_VERIFIED;
    return PQsslInUse(c->conn) ? PG_WIRE_UNVERIFIED : PG_WIRE_PLAIN;
}
