/* Why libpq refused the server's certificate. It says "certificate verify failed" and no more, so the
 * certificate is asked for once again, on a connection of its own over which nothing is said, and judged in
 * the same way. */
#include "sql/connection/pg_internal.h"

#include <fcntl.h>
#include <netdb.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define ANSWER_MS 2000

static int connect_within(const struct addrinfo *a)
{
    const struct timeval patience = {.tv_sec = ANSWER_MS / 1000};
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), failed = 1;
    socklen_t size = sizeof failed;
    if (fd < 0)
        return -1;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    connect(fd, a->ai_addr, a->ai_addrlen);
    if (poll(&p, 1, ANSWER_MS) == 1 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &size) == 0 &&
        failed == 0 && fcntl(fd, F_SETFL, 0) == 0 &&
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0 &&
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0)
        return fd;
    close(fd);
    return -1;
}

/* A socket on which the server has agreed to TLS, or -1. */
static int ask_for_tls(PGconn *conn)
{
    static const uint8_t request[8] = {0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f}; /* SSLRequest, protocol 3 */
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char answer = 0;
    if (!PQhostaddr(conn) || getaddrinfo(PQhostaddr(conn), PQport(conn), &hints, &found) != 0)
        return -1;
    int fd = connect_within(found);
    freeaddrinfo(found);
    if (fd >= 0 && send(fd, request, sizeof request, MSG_NOSIGNAL) == (ssize_t)sizeof request &&
        recv(fd, &answer, 1, 0) == 1 && answer == 'S')
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* The file that libpq trusts; "" none. */
static void find_root(PGconn *conn, char *out, size_t out_size)
{
    const char *home = getenv("HOME");
    PQconninfoOption *options = PQconninfo(conn);
    snprintf(out, out_size, "%s", pg_option(options, "sslrootcert"));
    if (out[0] == '\0' && home)
        snprintf(out, out_size, "%s/.postgresql/root.crt", home);
    PQconninfoFree(options);
}

static long verify_server(int fd, const char *root)
{
    long result = X509_V_OK;
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL *ssl = NULL;
    if (ctx && SSL_CTX_load_verify_locations(ctx, root, NULL) == 1 && (ssl = SSL_new(ctx)) != NULL &&
        SSL_set_fd(ssl, fd) == 1) {
        SSL_connect(ssl);
        result = SSL_get_verify_result(ssl);
    }
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    return result;
}

const char *pg_tls_reason(PGconn *conn)
{
    char root[1024];
    find_root(conn, root, sizeof root);
    int fd = ask_for_tls(conn);
    if (fd < 0)
        return NULL;
    long result = verify_server(fd, root);
    close(fd);
    return result != X509_V_OK ? X509_verify_cert_error_string(result) : NULL;
}
