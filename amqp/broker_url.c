/* AMQP URLs. The library's own parser refuses encoded bytes above %7f (a password such as "pä"), reads "% 1"
 * as an escape and takes ':' in a vhost for an error, so this is our own. Texts never quote the URL: it holds
 * the password. */
#include "amqp/broker_internal.h"
#include <stdio.h>
#include <string.h>

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    if (c >= 'A' && c <= 'F') {
        return c - 'A' + 10;
    }
    return -1;
}

/* Percent-decodes [from, to) into out. */
static int url_decode(const char *from, const char *to, char *out, size_t out_size, const char *part,
                      struct err *e)
{
    size_t n = 0;

    while (from < to) {
        int value = (unsigned char)*from++;
        if (value == '%') {
            int high = to - from >= 2 ? hex_digit(from[0]) : -1;
            int low = high >= 0 ? hex_digit(from[1]) : -1;
            if (low < 0) {
                return err_set(e, ERR_CONFIG,
                               "amqp URL: '%%' in the %s must be followed by two hex digits "
                               "(a plain percent sign is written %%25)",
                               part);
            }
            value = high * 16 + low;
            from += 2;
        }
        if (value == 0) {
            return err_set(e, ERR_CONFIG, "amqp URL: the %s must not contain a NUL byte", part);
        }
        if (n + 1 >= out_size) {
            return err_set(e, ERR_CONFIG, "amqp URL: the %s is longer than %zu bytes", part, out_size - 1);
        }
        out[n++] = (char)value;
    }
    out[n] = '\0';
    return 0;
}

static int parse_port(const char *from, const char *to, int *port, struct err *e)
{
    int value = 0;

    for (const char *p = from; p < to; p++) {
        if (*p < '0' || *p > '9' || p - from >= 5) {
            return err_set(e, ERR_CONFIG,
                           "amqp URL: the port must be a number from 1 to 65535 (and '@', ':' or '/' in a "
                           "password must be percent-encoded)");
        }
        value = value * 10 + (*p - '0');
    }
    if (value < 1 || value > 65535) {
        return err_set(e, ERR_CONFIG, "amqp URL: the port must be a number from 1 to 65535");
    }
    *port = value;
    return 0;
}

static int parse_user(const char *from, const char *to, struct broker_url *out, struct err *e)
{
    const char *colon = memchr(from, ':', (size_t)(to - from));
    const char *user_end = colon ? colon : to;

    if (url_decode(from, user_end, out->user, sizeof(out->user), "user name", e)) {
        return -1;
    }
    out->password[0] = '\0';
    return colon ? url_decode(colon + 1, to, out->password, sizeof(out->password), "password", e) : 0;
}

static int parse_host(const char *from, const char *to, struct broker_url *out, struct err *e)
{
    const char *host_end = to;
    const char *port = NULL;

    if (from >= to) {
        return 0; /* "amqp:///vhost": the default host */
    }
    if (*from == '[') {
        from++;
        host_end = memchr(from, ']', (size_t)(to - from));
        if (!host_end || (host_end + 1 < to && host_end[1] != ':')) {
            return err_set(e, ERR_CONFIG, "amqp URL: an IPv6 address is written [address] or [address]:port");
        }
        port = host_end + 1 < to ? host_end + 2 : NULL;
    } else {
        const char *colon = memchr(from, ':', (size_t)(to - from));
        if (colon) {
            host_end = colon;
            port = colon + 1;
        }
    }
    if (port && port < to && parse_port(port, to, &out->port, e)) {
        return -1;
    }
    if (from == host_end) {
        return 0;
    }
    if (url_decode(from, host_end, out->host, sizeof(out->host), "host", e)) {
        return -1;
    }
    for (const char *p = out->host; *p; p++) {
        /* Resolvers take ASCII only, and the name is shown in messages. */
        if (*p <= ' ' || (unsigned char)*p >= 0x7F || *p == '@' || *p == '/') {
            return err_set(e, ERR_CONFIG, "amqp URL: the host contains a character that no host name has");
        }
    }
    return 0;
}

int broker_url_parse(const char *url, struct broker_url *out, struct err *e)
{
    *out = (struct broker_url){
        .port = 5672, .host = "localhost", .user = "guest", .password = "guest", .vhost = "/"};
    if (url && strncmp(url, "amqps://", 8) == 0) {
        out->tls = true;
        out->port = 5671;
        url += 8;
    } else if (url && strncmp(url, "amqp://", 7) == 0) {
        url += 7;
    } else {
        return err_set(e, ERR_CONFIG,
                       "amqp URL: must look like amqp://user:password@host:port/vhost, or amqps:// for TLS");
    }
    if (strpbrk(url, "?#")) {
        return err_set(
            e, ERR_CONFIG,
            "amqp URL: query parameters are not supported; heartbeat, ca_file, cert_file and key_file "
            "are options of [amqp] ('?' and '#' in a name are written %%3f and %%23)");
    }

    const char *slash = strchr(url, '/');
    const char *authority_end = slash ? slash : url + strlen(url);
    /* The last '@': people forget to encode one in a password. */
    const char *at = memrchr(url, '@', (size_t)(authority_end - url));

    if (at && parse_user(url, at, out, e)) {
        return -1;
    }
    if (parse_host(at ? at + 1 : url, authority_end, out, e)) {
        return -1;
    }
    if (!slash || slash[1] == '\0') {
        return 0; /* the URI specification says "" for "amqp://host/", a vhost that nobody has */
    }
    if (strchr(slash + 1, '/')) {
        return err_set(
            e, ERR_CONFIG,
            "amqp URL: only one '/' may follow the host; in a vhost or a password it is written %%2f");
    }
    if (strchr(slash + 1, '@')) { /* "user:pa/ss@host" */
        return err_set(
            e, ERR_CONFIG,
            "amqp URL: '@' behind the host (in a vhost it is written %%40; '/' in a password %%2f)");
    }
    return url_decode(slash + 1, slash + 1 + strlen(slash + 1), out->vhost, sizeof(out->vhost), "vhost", e);
}

int broker_url_check(const char *url, struct err *e)
{
    struct broker_url parsed;
    int rc = broker_url_parse(url, &parsed, e);

    explicit_bzero(&parsed, sizeof(parsed));
    return rc;
}

int broker_url_vhost(const char *url, char *out, size_t out_size, struct err *e)
{
    struct broker_url parsed;
    int rc = broker_url_parse(url, &parsed, e);

    if (rc == 0 && (size_t)snprintf(out, out_size, "%s", parsed.vhost) >= out_size) {
        rc = err_set(e, ERR_CONFIG, "amqp URL: the vhost is longer than %zu bytes", out_size - 1);
    }
    explicit_bzero(&parsed, sizeof(parsed));
    return rc;
}

int broker_url_address(const char *url, char *out, size_t out_size, struct err *e)
{
    struct broker_url parsed;
    int rc = broker_url_parse(url, &parsed, e);

    if (rc == 0) {
        bool ipv6 = strchr(parsed.host, ':') != NULL;
        snprintf(out, out_size, "%s%s%s:%d", ipv6 ? "[" : "", parsed.host, ipv6 ? "]" : "", parsed.port);
    }
    explicit_bzero(&parsed, sizeof(parsed));
    return rc;
}
