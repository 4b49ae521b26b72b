/* AMQP URLs. The library's own parser refuses encoded bytes above %7f (a password such as "pä"), reads "% 1"
 * as an escape, rejects ':' in a vhost and supports one host only, so this is our own. Error texts never
 * quote the URL, which contains the password, except the name of an invalid host. */
#include "amqp/connection/broker_internal.h"
#include <stdio.h>
#include <string.h>

/* Percent-decodes [from, to) into out. */
static int url_decode(const char *from, const char *to, char *out, size_t out_size, const char *part,
                      struct err *e)
{
    size_t n = 0;
    while (from < to) {
        int value = (unsigned char)*from++;
        if (value == '%') {
            int high = to - from >= 2 ? hex_digit((uint8_t)from[0]) : -1;
            int low = high >= 0 ? hex_digit((uint8_t)from[1]) : -1;
            if (low < 0)
                return err_set(e, ERR_CONFIG,
                               "'%%' in the %s must be followed by two hex digits "
                               "(a plain percent sign is written %%25)",
                               part);
            value = high * 16 + low;
            from += 2;
        }
        if (value == 0)
            return err_set(e, ERR_CONFIG, "the %s must not contain a NUL byte", part);
        if (n + 1 >= out_size)
            return err_set(e, ERR_CONFIG, "the %s is longer than %zu bytes", part, out_size - 1);
        out[n++] = (char)value;
    }
    out[n] = '\0';
    return 0;
}

static int parse_port(const char *from, const char *to, int *port)
{
    int value = 0;
    for (const char *p = from; p < to; p++) {
        if (*p < '0' || *p > '9' || p - from >= 5)
            return -1;
        value = value * 10 + (*p - '0');
    }
    *port = value;
    return value < 1 || value > 65535 ? -1 : 0;
}

static int parse_user(const char *from, const char *to, struct broker_url *out, struct err *e)
{
    const char *colon = memchr(from, ':', (size_t)(to - from));
    const char *user_end = colon ? colon : to;
    if (url_decode(from, user_end, out->user, sizeof(out->user), "user name", e))
        return -1;
    out->password[0] = '\0';
    return colon ? url_decode(colon + 1, to, out->password, sizeof(out->password), "password", e) : 0;
}

/* Splits [from, to) into name and port; *port NULL: none is given. */
static int split_host(const char *from, const char *to, struct bytes *name, const char **port)
{
    const char *end = memchr(from, ':', (size_t)(to - from));
    if (from < to && *from == '[') {
        from++;
        end = memchr(from, ']', (size_t)(to - from));
        if (!end || (end + 1 < to && end[1] != ':'))
            return -1;
        *port = end + 1 < to ? end + 2 : NULL;
    } else {
        *port = end ? end + 1 : NULL;
        end = end ? end : to;
    }
    *name = bytes_of(from, (size_t)(end - from));
    return 0;
}

static int parse_host(const char *from, const char *to, struct broker_url *url, struct err *e)
{
    struct broker_host *out = &url->hosts[url->host_count];
    struct bytes name;
    const char *port;
    char shown[100];
    if (url->host_count == BROKER_HOSTS_MAX)
        return err_set(e, ERR_CONFIG, "names more than %d hosts", BROKER_HOSTS_MAX);
    *out = (struct broker_host){.name = "localhost", .port = url->tls ? 5671 : 5672};
    if (split_host(from, to, &name, &port))
        return err_set(e, ERR_CONFIG, "host %zu: an IPv6 address is written [address] or [address]:port",
                       url->host_count + 1);
    if (port && port < to && parse_port(port, to, &out->port))
        return err_set(
            e, ERR_CONFIG,
            "host '%s': the port must be a number from 1 to 65535 (and '@', ':' or '/' in a password "
            "must be percent-encoded)",
            bytes_printable(name, shown, sizeof(shown)));
    const char *chars = (const char *)name.data;
    if (name.len > 0 && url_decode(chars, chars + name.len, out->name, sizeof(out->name), "host", e))
        return -1;
    for (const char *p = out->name; *p; p++) {
        /* Resolvers take ASCII only, and the name is shown in messages. */
        if (*p <= ' ' || (unsigned char)*p >= 0x7F || *p == '@' || *p == '/' || *p == ',')
            return err_set(e, ERR_CONFIG, "host %zu contains a character that is not allowed in host names",
                           url->host_count + 1);
    }
    url->host_count++;
    return 0;
}

/* "n1,n2:5673,[::1]:5674", or nothing: the default host. */
static int parse_hosts(const char *from, const char *to, struct broker_url *out, struct err *e)
{
    bool several = memchr(from, ',', (size_t)(to - from)) != NULL;
    for (const char *end;; from = end + 1) {
        end = memchr(from, ',', (size_t)(to - from));
        end = end ? end : to;
        if (several && (from == end || *from == ':'))
            return err_set(
                e, ERR_CONFIG,
                "host %zu has no name: several are written host:port,host:port with nothing between "
                "them but the comma",
                out->host_count + 1);
        if (parse_host(from, end, out, e))
            return -1;
        if (end == to)
            return 0;
    }
}

/* The part after the slash, checked first: if it has no '@', no part of the password can be in it. */
static int check_path(const char *path, struct err *e)
{
    if (strchr(path, '/')) {
        return err_set(e, ERR_CONFIG,
                       "only one '/' may follow the host; in a vhost or a password it is written %%2f");
    }
    if (strchr(path, '@')) { /* "user:pa/ss@host" */
        return err_set(e, ERR_CONFIG,
                       "'@' behind the host (in a vhost it is written %%40; '/' in a password %%2f)");
    }
    return 0;
}

/* [user[:password]@]hosts */
static int parse_authority(const char *from, const char *to, struct broker_url *out, struct err *e)
{
    const char *first = memchr(from, '@', (size_t)(to - from));
    /* The last one: people forget to encode one in a password. */
    const char *at = memrchr(from, '@', (size_t)(to - from));
    if (first != at && memchr(first, ',', (size_t)(at - first))) { /* "u:p@n1,u:p@n2" */
        return err_set(e, ERR_CONFIG,
                       "user and password are written once, before the first host ('@' and ',' in a password "
                       "are written %%40 and %%2c)");
    }
    if (at && parse_user(from, at, out, e))
        return -1;
    return parse_hosts(at ? at + 1 : from, to, out, e);
}

int broker_url_parse(const char *url, struct broker_url *out, struct err *e)
{
    *out = (struct broker_url){.user = "guest", .password = "guest", .vhost = "/"};
    out->tls = url && strncmp(url, "amqps://", 8) == 0;
    if (!out->tls && (!url || strncmp(url, "amqp://", 7) != 0))
        return err_set(
            e, ERR_CONFIG,
            "is not an AMQP address (not shown, it may contain a password): it must start with amqp:// "
            "or amqps://, such as amqp://user:password@host:5672/%%2f or, with the hosts of a "
            "cluster, amqp://user:password@host1,host2,host3/%%2f");
    url += out->tls ? 8 : 7;
    if (strpbrk(url, "?#")) {
        return err_set(
            e, ERR_CONFIG,
            "'?' and '#' in a user, password or vhost are written %%3f and %%23; query parameters are not "
            "supported: heartbeat, ca_file, cert_file and key_file are options of [amqp]");
    }

    if (strstr(url, ",amqp://") || strstr(url, ",amqps://"))
        return err_set(
            e, ERR_CONFIG,
            "contains more than one address: several hosts of a cluster are written in one, such as "
            "amqp://user:password@host1:5672,host2:5672,host3:5672/vhost");
    const char *slash = strchr(url, '/');
    if ((slash && check_path(slash + 1, e)) ||
        parse_authority(url, slash ? slash : url + strlen(url), out, e))
        return -1;
    if (!slash || slash[1] == '\0')
        return 0; /* by the URI specification "amqp://host/" means the vhost "", which does not exist in
                     practice */
    return url_decode(slash + 1, slash + 1 + strlen(slash + 1), out->vhost, sizeof(out->vhost), "vhost", e);
}

int broker_url_check(const char *url, struct err *e)
{
    struct broker_url parsed;
    int rc = broker_url_parse(url, &parsed, e);
    explicit_bzero(&parsed, sizeof(parsed));
    return rc;
}

int broker_url_hosts(const char *url)
{
    struct broker_url parsed;
    struct err ignored;
    int hosts = broker_url_parse(url, &parsed, &ignored) ? 0 : (int)parsed.host_count;
    explicit_bzero(&parsed, sizeof(parsed));
    return hosts;
}

int broker_url_vhost(const char *url, char *out, size_t out_size, struct err *e)
{
    struct broker_url parsed;
    int rc = broker_url_parse(url, &parsed, e);
    if (rc)
        err_wrap(e, "amqp.url");
    else if ((size_t)snprintf(out, out_size, "%s", parsed.vhost) >= out_size)
        rc = err_set(e, ERR_CONFIG, "amqp.url: the vhost is longer than %zu bytes", out_size - 1);
    explicit_bzero(&parsed, sizeof(parsed));
    return rc;
}

void broker_host_address(const struct broker_host *h, char *out, size_t out_size)
{
    bool ipv6 = strchr(h->name, ':') != NULL;
    snprintf(out, out_size, "%s%s%s:%d", ipv6 ? "[" : "", h->name, ipv6 ? "]" : "", h->port);
}
