#include "core/message/reserved.h"
#include "core/message/wire.h"
#include "tests/unit/unit.h"
#include <string.h>

#define INTAKE "in"

static const struct accept_route routes[] = {
    {.intake_exchange = "orders.in", .delivery_exchange = "orders"},
    {.intake_exchange = "mail.in", .delivery_exchange = "postdate.mail"},
};
static const struct accept_rules rules = {.intake_queue = INTAKE,
                                          .intake_exchange = "later",
                                          .delivery_exchange = "postdate.out",
                                          .routes = routes,
                                          .route_count = 2};

static struct err e;

static int check(const char *exchange, const char *routing_key, struct bytes headers)
{
    struct wire_properties p = {.flags = WIRE_HEADERS, .headers = headers};
    struct buf raw;
    buf_init(&raw, 4096);
    wire_properties_write(&p, &raw);
    const struct message m = {.exchange = bytes_of_str(exchange),
                              .routing_key = bytes_of_str(routing_key),
                              .properties = headers.len > 0 ? buf_bytes(&raw) : bytes_of("", 0)};
    int rc = reserved_check(&m, &rules, &e);
    buf_free(&raw);
    return rc;
}

static const struct bytes none;

TEST(test_names)
{
    static const char *const own[] = {"postdate.control", "postdate.", "postdate.mark.x", "in", "in.expired"};
    static const char *const others[] = {"",  "postdate",         "work",
                                         "i", "Postdate.control", "x.postdate.control"};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        assert_int_equal(check("", own[i], none), -1);
        assert_int_equal(e.kind, ERR_REJECT);
        assert_non_null(strstr(e.text, own[i]));
        assert_int_equal(check("orders", own[i], none), 0);
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_int_equal(check("", others[i], none), 0);
}

/* What nobody can publish by AMQP 0-9-1: RabbitMQ would close the channel. */
TEST(test_what_came_by_another_protocol)
{
    static const struct {
        const char *text;
        int rc;
    } expirations[] = {
        {"0", 0}, {"315360000000", 0}, {"+5", 0},  {"315360000001", -1}, {"soon", -1},
        {"", -1}, {"+", -1},           {"-1", -1}, {"1.5", -1},          {"99999999999999999999999999", -1}};
    struct buf headers, raw;
    buf_init(&headers, 4096);
    buf_init(&raw, 4096);
    wire_put_string(&headers, bytes_of_str("BCC"), bytes_of_str("elsewhere"));
    assert_int_equal(check("orders", "k", buf_bytes(&headers)), -1);
    assert_non_null(strstr(e.text, "\"BCC\" is no array"));
    buf_reset(&headers);
    wire_put_string(&headers, bytes_of_str("ACCESS"), bytes_of_str("elsewhere"));
    wire_put_field(&headers, bytes_of_str("CC"), 'A', (struct bytes){0});
    assert_int_equal(check("orders", "k", buf_bytes(&headers)), 0);
    for (size_t i = 0; i < sizeof expirations / sizeof expirations[0]; i++) {
        buf_reset(&raw);
        wire_properties_write(&(struct wire_properties){.flags = WIRE_EXPIRATION,
                                                        .expiration = bytes_of_str(expirations[i].text)},
                              &raw);
        assert_int_equal(reserved_check_properties(buf_bytes(&raw), &e), expirations[i].rc);
    }
    buf_free(&headers);
    buf_free(&raw);
}

TEST(test_deaths)
{
    struct buf headers, items;
    buf_init(&headers, 4096);
    buf_init(&items, 4096);
    wire_put_field(&headers, bytes_of_str("x-death"), 'A', buf_bytes(&items));
    assert_int_equal(check("orders", "k", buf_bytes(&headers)), 0);
    wire_put_item(&items, 'F', bytes_of("", 0));
    buf_reset(&headers);
    wire_put_field(&headers, bytes_of_str("x-death"), 'A', buf_bytes(&items));
    assert_int_equal(check("orders", "k", buf_bytes(&headers)), 0);
    wire_put_item(&items, 'S', bytes_of_str("a"));
    buf_reset(&headers);
    wire_put_field(&headers, bytes_of_str("x-death"), 'A', buf_bytes(&items));
    assert_int_equal(check("orders", "k", buf_bytes(&headers)), -1);
    assert_non_null(strstr(e.text, "x-death"));
    buf_reset(&headers);
    wire_put_string(&headers, bytes_of_str("x-death"), bytes_of_str("a"));
    assert_int_equal(check("orders", "k", buf_bytes(&headers)), -1);
    buf_free(&items);
    buf_free(&headers);
}

static int check_reply_to(const char *reply_to)
{
    struct wire_properties p = {.flags = WIRE_REPLY_TO, .reply_to = bytes_of_str(reply_to)};
    struct buf raw;
    buf_init(&raw, 4096);
    wire_properties_write(&p, &raw);
    const struct message m = {.exchange = bytes_of_str("orders"), .properties = buf_bytes(&raw)};
    int rc = reserved_check(&m, &rules, &e);
    buf_free(&raw);
    return rc;
}

TEST(test_direct_reply_to)
{
    assert_int_equal(check_reply_to("amq.rabbitmq.reply-to"), -1);
    assert_int_equal(e.kind, ERR_REJECT);
    assert_non_null(strstr(e.text, "reply_to: \"amq.rabbitmq.reply-to\""));
    assert_int_equal(check_reply_to("amq.rabbitmq.reply-to.g1h2"), 0);
    assert_int_equal(check_reply_to("answers"), 0);
    assert_int_equal(check_reply_to(""), 0);
}

TEST(test_exchanges)
{
    static const char *const own[] = {"postdate.", "postdate.delayed", "postdate.ttl.exit",
                                      "later",     "orders.in",        "mail.in"};
    static const char *const others[] = {"postdate",         "postdate.out", "postdate.delivery",
                                         "postdate.mail",    "orders",       "in",
                                         "Postdate.delayed", "later.",       "x.postdate.delayed"};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        assert_int_equal(check(own[i], "k", none), -1);
        assert_int_equal(e.kind, ERR_REJECT);
        assert_non_null(strstr(e.text, own[i]));
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_int_equal(check(others[i], "k", none), 0);
}

/* Headers with a list of two names under `header`, behind another list of the same name. */
static int check_list(const char *header, const char *name, char kind)
{
    struct buf headers, items, harmless;
    buf_init(&headers, 1024);
    buf_init(&items, 1024);
    buf_init(&harmless, 1024);
    wire_put_item(&harmless, 'S', bytes_of_str("a"));
    wire_put_item(&items, 'S', bytes_of_str("b"));
    wire_put_item(&items, kind, bytes_of_str(name));
    wire_put_field(&headers, bytes_of_str(header), 'A', buf_bytes(&harmless));
    wire_put_field(&headers, bytes_of_str(header), 'A', buf_bytes(&items));
    int rc = check("", "work", buf_bytes(&headers));
    buf_free(&harmless);
    buf_free(&items);
    buf_free(&headers);
    return rc;
}

TEST(test_further_routing_keys)
{
    assert_int_equal(check_list("CC", "postdate.control", 'S'), -1);
    assert_int_equal(check_list("BCC", "postdate.control", 'S'), -1);
    assert_int_equal(check_list("CC", "in.expired", 'x'), -1);
    assert_int_equal(check_list("CC", "work2", 'S'), 0);
    assert_int_equal(check_list("cc", "postdate.control", 'S'), 0);
    assert_int_equal(check_list("other", "postdate.control", 'S'), 0);
}
