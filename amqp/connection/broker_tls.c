/* TLS towards RabbitMQ: trusted certificates, and the error texts of a failed verification.
 *
 * rabbitmq-c makes the handshake; then its session is taken over, so that frames are read and written as
 * without TLS. The library checks certificates after the handshake, does not report the reason, and ignores
 * IP addresses in them. So OpenSSL is configured, through the library's context, to verify peer and host in
 * the handshake, and on_verify records the reason of a failure. */
#include "amqp/connection/broker_internal.h"
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_set(const char *option)
{
    return option && *option;
}

/* --- why a certificate is refused */

static void append_name(char *out, size_t out_size, struct bytes name)
{
    size_t used = strlen(out);
    char shown[100];
    if (used + 8 < out_size)
        snprintf(out + used, out_size - used, "%s'%s'", used > 0 ? ", " : "",
                 bytes_printable(name, shown, sizeof(shown)));
}

static void append_alternative(char *out, size_t out_size, const GENERAL_NAME *name)
{
    char text[INET6_ADDRSTRLEN] = "";
    if (name->type == GEN_DNS) {
        append_name(
            out, out_size,
            bytes_of(ASN1_STRING_get0_data(name->d.dNSName), (size_t)ASN1_STRING_length(name->d.dNSName)));
    } else if (name->type == GEN_IPADD) {
        int family = ASN1_STRING_length(name->d.iPAddress) == 4 ? AF_INET : AF_INET6;
        bool known = family == AF_INET || ASN1_STRING_length(name->d.iPAddress) == 16;
        if (known &&
            inet_ntop(family, ASN1_STRING_get0_data(name->d.iPAddress), text, (socklen_t)sizeof(text)))
            append_name(out, out_size, bytes_of_str(text));
    }
}

/* "'a.example', '10.0.0.1'": the names of the certificate. */
static void list_names(X509 *cert, char *out, size_t out_size)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    char common[100];
    out[0] = '\0';
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) /* none: -1 */
        append_alternative(out, out_size, sk_GENERAL_NAME_value(names, i));
    GENERAL_NAMES_free(names);
    if (out[0] == '\0' &&
        X509_NAME_get_text_by_NID(X509_get_subject_name(cert), NID_commonName, common, sizeof(common)) > 0)
        append_name(out, out_size, bytes_of_str(common));
    if (out[0] == '\0')
        snprintf(out, out_size, "no name");
}

static const char *format_time(const ASN1_TIME *time, char *out, size_t out_size)
{
    struct tm tm;
    if (ASN1_TIME_to_tm(time, &tm) != 1 || strftime(out, out_size, "%Y-%m-%d %H:%M UTC", &tm) == 0)
        snprintf(out, out_size, "a time that cannot be read");
    return out;
}

static void explain_certificate(struct broker *b, int error, X509 *cert, int depth)
{
    const char *whose = depth == 0 ? "its certificate" : "the certificate of its authority";
    char names[160], when[40];
    size_t size = sizeof(b->tls_why);
    switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        snprintf(b->tls_why, size, "%s expired on %s: renew it there", whose,
                 format_time(X509_get0_notAfter(cert), when, sizeof(when)));
        break;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        snprintf(b->tls_why, size, "%s is not valid before %s: are the clocks of both machines right?", whose,
                 format_time(X509_get0_notBefore(cert), when, sizeof(when)));
        break;
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
        snprintf(b->tls_why, size,
                 "its certificate is self-signed: set amqp.ca_file to it if you trust it, or have it signed "
                 "by an authority");
        break;
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
        snprintf(b->tls_why, size,
                 "its certificate is signed by an authority that is not trusted: set amqp.ca_file to that "
                 "authority (empty: the system's)");
        break;
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        list_names(cert, names, sizeof(names));
        snprintf(b->tls_why, size,
                 "its certificate is for %s, not for '%.100s': use a name of the certificate in amqp.url, or "
                 "have it issued for this name",
                 names, b->tls_host);
        break;
    default:
        snprintf(b->tls_why, size, "%s is rejected: %s", whose, X509_verify_cert_error_string(error));
    }
}

/* Called by OpenSSL for each certificate of the chain, in the thread that opens b. */
static int on_verify(int ok, X509_STORE_CTX *store)
{
    SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct broker *b = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    if (b->ssl != ssl && SSL_up_ref(ssl) == 1) { /* the library does not show it otherwise */
        broker_tls_free(b);
        b->ssl = ssl;
    }
    if (!ok && b->tls_why[0] == '\0')
        explain_certificate(b, X509_STORE_CTX_get_error(store), X509_STORE_CTX_get_current_cert(store),
                            X509_STORE_CTX_get_error_depth(store));
    return ok;
}

/* --- why the other side, or the line, refuses */

static const char *explain_alert(const struct broker *b, int reason)
{
    switch (reason) {
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
        return "it requires a client certificate: set amqp.cert_file and amqp.key_file";
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
        return b->tls_has_cert ? "it rejects the TLS handshake: perhaps amqp.cert_file"
                               : "it rejects the TLS handshake: it may require a client certificate "
                                 "(amqp.cert_file and amqp.key_file)";
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
        return "it rejects our client certificate: amqp.cert_file must be signed by an authority that "
               "RabbitMQ trusts (its cacertfile)";
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
        return "it rejects our client certificate, which has expired: renew amqp.cert_file";
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
        return "the server there does not speak TLS: amqps:// needs RabbitMQ's TLS port, often 5671";
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
    case SSL_R_UNSUPPORTED_PROTOCOL:
        return "it supports no TLS 1.2 or newer: enable it there (ssl_options.versions)";
    default:
        return NULL;
    }
}

/* With TLS 1.3 the server checks our certificate after our side of the handshake, and its error can be lost
 * with the connection. */
static const char *explain_hang_up(const struct broker *b, int status)
{
    bool logged_in = b->frame_max > 0;
    if (b->fd < 0 || logged_in ||
        (status != AMQP_STATUS_SSL_ERROR && status != AMQP_STATUS_SOCKET_ERROR &&
         status != AMQP_STATUS_SOCKET_CLOSED && status != AMQP_STATUS_CONNECTION_CLOSED))
        return NULL;
    return b->tls_has_cert ? "it closed the connection right after the TLS handshake: it may reject our "
                             "client certificate (amqp.cert_file)"
                           : "it closed the connection right after the TLS handshake: it may require a "
                             "client certificate "
                             "(amqp.cert_file and amqp.key_file)";
}

const char *broker_tls_reason(const struct broker *b, int status)
{
    unsigned long error = ERR_peek_last_error();
    const char *text = NULL;
    if (!b->tls)
        return NULL;
    if (b->tls_why[0] != '\0')
        return b->tls_why;
    if (error != 0 && ERR_GET_LIB(error) == ERR_LIB_SSL) {
        text = explain_alert(b, ERR_GET_REASON(error));
        text = text ? text : ERR_reason_error_string(error);
    }
    return text ? text : explain_hang_up(b, status);
}

/* --- setting up */

static int check_readable(const char *option, const char *path, struct err *e)
{
    if (access(path, R_OK) != 0)
        return err_set(e, ERR_CONFIG, "%s: cannot read '%s': %s", option, path, strerror(errno));
    return 0;
}

int broker_tls_check_files(const struct broker_options *o, struct err *e)
{
    if (is_set(o->cert_file) != is_set(o->key_file))
        return err_set(e, ERR_CONFIG,
                       "amqp.cert_file and amqp.key_file belong together: set both or neither");
    if ((is_set(o->ca_file) && check_readable("amqp.ca_file", o->ca_file, e)) ||
        (is_set(o->cert_file) && check_readable("amqp.cert_file", o->cert_file, e)) ||
        (is_set(o->key_file) && check_readable("amqp.key_file", o->key_file, e)))
        return -1;
    return 0;
}

/* The certificate must be for the host of the URL, which may be an address. */
static int expect_host(SSL_CTX *ctx, const char *host)
{
    X509_VERIFY_PARAM *param = SSL_CTX_get0_param(ctx);
    struct in6_addr address;
    if (inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(param, host) == 1 ? 0 : -1;
    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return X509_VERIFY_PARAM_set1_host(param, host, 0) == 1 ? 0 : -1;
}

static int load_files(amqp_socket_t *socket, SSL_CTX *ctx, const struct broker_options *o, struct err *e)
{
    if (!is_set(o->ca_file)) {
        if (SSL_CTX_set_default_verify_paths(ctx) != 1) {
            return err_set(e, ERR_CONFIG,
                           "amqp.ca_file: the system has no certificate authorities; set it to the file of "
                           "the authority that signed RabbitMQ's certificate");
        }
    } else if (amqp_ssl_socket_set_cacert(socket, o->ca_file) != AMQP_STATUS_OK) {
        return err_set(e, ERR_CONFIG, "amqp.ca_file: '%s' contains no PEM certificates", o->ca_file);
    }
    /* Without one, OpenSSL asks for it on the terminal. */
    amqp_ssl_socket_set_key_passwd(socket, "");
    if (is_set(o->cert_file) &&
        (amqp_ssl_socket_set_key(socket, o->cert_file, o->key_file) != AMQP_STATUS_OK ||
         SSL_CTX_check_private_key(ctx) != 1))
        return err_set(
            e, ERR_CONFIG,
            "amqp.cert_file '%s' and amqp.key_file '%s': not a PEM certificate with its key (a key "
            "protected by a password is not supported)",
            o->cert_file, o->key_file);
    return 0;
}

amqp_socket_t *broker_tls_socket(struct broker *b, const struct broker_options *o, const char *host,
                                 struct err *e)
{
    if (broker_tls_check_files(o, e))
        return NULL;
    amqp_socket_t *socket = amqp_ssl_socket_new(b->conn);
    SSL_CTX *ctx = socket ? amqp_ssl_socket_get_context(socket) : NULL;
    b->tls_has_cert = is_set(o->cert_file);
    snprintf(b->tls_host, sizeof(b->tls_host), "%s", host);
    if (!ctx || expect_host(ctx, host)) {
        err_set(e, ERR_BUG, "cannot set up TLS");
        return NULL;
    }
    if (load_files(socket, ctx, o, e))
        return NULL;
    SSL_CTX_set_app_data(ctx, b);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, on_verify);
    /* Looked at once more after the handshake. The library's own look at the name would refuse addresses. */
    amqp_ssl_socket_set_verify_peer(socket, 1);
    amqp_ssl_socket_set_verify_hostname(socket, 0);
    if (SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1) {
        err_set(e, ERR_BUG, "cannot set up TLS 1.2 or newer");
        return NULL;
    }
    ERR_clear_error(); /* so that later entries are about this connection */
    return socket;
}

/* --- the session */

int broker_tls_take_over(struct broker *b, struct err *e)
{
    BIO *bio = b->ssl ? SSL_get_rbio(b->ssl) : NULL;
    if (!bio || BIO_set_fd(bio, b->fd, BIO_NOCLOSE) != 1)
        return err_set(e, ERR_BUG, "cannot take over the TLS session");
    SSL_set_mode(b->ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    return 0;
}

void broker_tls_free(struct broker *b)
{
    SSL_free(b->ssl);
    b->ssl = NULL;
}

/* The meaning of a call of OpenSSL that transferred nothing. */
static ssize_t nothing_moved(const struct broker *b, int rc, short *events)
{
    switch (SSL_get_error(b->ssl, rc)) {
    case SSL_ERROR_WANT_READ:
        *events = POLLIN;
        return 0;
    case SSL_ERROR_WANT_WRITE:
        *events = POLLOUT;
        return 0;
    case SSL_ERROR_ZERO_RETURN:
        return AMQP_STATUS_CONNECTION_CLOSED;
    default:
        return AMQP_STATUS_SSL_ERROR;
    }
}

ssize_t broker_tls_receive(struct broker *b, void *data, size_t len, short *events)
{
    ERR_clear_error();
    int n = SSL_read(b->ssl, data, len < INT_MAX ? (int)len : INT_MAX);
    return n > 0 ? n : nothing_moved(b, n, events);
}

ssize_t broker_tls_transmit(struct broker *b, const void *data, size_t len, short *events)
{
    ERR_clear_error();
    int n = SSL_write(b->ssl, data, len < INT_MAX ? (int)len : INT_MAX);
    return n > 0 ? n : nothing_moved(b, n, events);
}

bool broker_tls_pending(const struct broker *b)
{
    return SSL_pending(b->ssl) > 0;
}
