/* The broker's URL from configuration and environment. */
#include "amqp/connection/broker_internal.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_encoded(struct buf *out, const char *text)
{
    for (; *text; text++)
        buf_printf(out, "%%%02x", (unsigned)(unsigned char)*text);
}

/* The parts, written with every byte encoded, are read as the same parts. */
static void check_again(const struct broker_url *url)
{
    struct broker_url again;
    struct err e = {0};
    struct buf text;
    buf_init(&text, 65536);
    buf_put_str(&text, url->tls ? "amqps://" : "amqp://");
    put_encoded(&text, url->user);
    buf_put_str(&text, ":");
    put_encoded(&text, url->password);
    buf_put_str(&text, "@");
    for (size_t i = 0; i < url->host_count; i++) {
        buf_put_str(&text, i > 0 ? "," : "");
        put_encoded(&text, url->hosts[i].name);
        buf_printf(&text, ":%d", url->hosts[i].port);
    }
    buf_put_str(&text, "/");
    put_encoded(&text, url->vhost);
    buf_put_u8(&text, 0);
    FUZZ_HOLDS(!text.failed);
    FUZZ_HOLDS(broker_url_parse((const char *)text.data, &again, &e) == 0);
    FUZZ_HOLDS(strcmp(again.user, url->user) == 0 && strcmp(again.password, url->password) == 0);
    FUZZ_HOLDS(again.host_count == url->host_count && again.tls == url->tls);
    for (size_t i = 0; i < url->host_count; i++)
        FUZZ_HOLDS(strcmp(again.hosts[i].name, url->hosts[i].name) == 0 &&
                   again.hosts[i].port == url->hosts[i].port);
    FUZZ_HOLDS(strcmp(again.vhost, url->vhost) == 0 || *url->vhost == '\0');
    buf_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct broker_url url;
    struct err e = {0};
    char vhost[BROKER_NAME_MAX + 1], address[BROKER_ADDRESS_MAX];
    char *text = fuzz_text(bytes_of(data, size));
    int rc = broker_url_parse(text, &url, &e);
    FUZZ_HOLDS(broker_url_check(text, NULL) == rc);
    if (rc != 0) {
        fuzz_check_err(&e, ERR_CONFIG);
        FUZZ_HOLDS(broker_url_vhost(text, vhost, sizeof(vhost), NULL) != 0);
    } else {
        FUZZ_HOLDS(url.host_count >= 1 && url.host_count <= BROKER_HOSTS_MAX);
        FUZZ_HOLDS(memchr(url.user, 0, sizeof(url.user)) && memchr(url.password, 0, sizeof(url.password)));
        FUZZ_HOLDS(broker_url_vhost(text, vhost, sizeof(vhost), &e) == 0 && strcmp(vhost, url.vhost) == 0);
        for (size_t i = 0; i < url.host_count; i++) {
            FUZZ_HOLDS(url.hosts[i].port >= 1 && url.hosts[i].port <= 65535 && *url.hosts[i].name);
            broker_host_address(&url.hosts[i], address, sizeof(address));
            fuzz_check_reason(bytes_of_str(address)); /* it goes into messages */
        }
        check_again(&url);
    }
    free(text);
    return 0;
}
