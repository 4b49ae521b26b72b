#include "amqp/connection/broker_internal.h"
#include "tests/unit/unit.h"

#include <string.h>

static struct broker_url url;
static struct err e;

static void accepted(const char *text)
{
    if (broker_url_parse(text, &url, &e) != 0)
        fail_msg("%s: %s", text, e.text);
}

static void has_host(size_t i, const char *name, int port)
{
    assert_true(i < url.host_count);
    assert_string_equal(url.hosts[i].name, name);
    assert_int_equal(url.hosts[i].port, port);
}

static void refused(const char *text, const char *reason)
{
    assert_int_equal(broker_url_parse(text, &url, &e), -1);
    assert_int_equal(e.kind, ERR_CONFIG);
    if (strstr(e.text, reason) == NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", text, e.text, reason);
    assert_null(strstr(e.text, "hunter2"));
}

TEST(test_one_host)
{
    accepted("amqp://");
    assert_int_equal(url.host_count, 1);
    has_host(0, "localhost", 5672);
    assert_string_equal(url.user, "guest");
    assert_string_equal(url.vhost, "/");
    accepted("amqps://u:p%40ss@h/v%2f1");
    assert_int_equal(url.host_count, 1);
    has_host(0, "h", 5671);
    assert_string_equal(url.password, "p@ss");
    assert_string_equal(url.vhost, "v/1");
    accepted("amqp://:5673/v");
    has_host(0, "localhost", 5673);
    accepted("amqp://u:p,a@ss@h:1"); /* forgotten encodings, as ever */
    assert_string_equal(url.password, "p,a@ss");
}

TEST(test_several_hosts)
{
    accepted("amqp://user:pass@n1:5672,n2:5673,n3:5674/%2f");
    assert_int_equal(url.host_count, 3);
    has_host(0, "n1", 5672);
    has_host(1, "n2", 5673);
    has_host(2, "n3", 5674);
    assert_string_equal(url.user, "user");
    assert_string_equal(url.vhost, "/");
    accepted("amqps://u:p,q@n1,[::1]:7000,[fe80::1],n1");
    assert_int_equal(url.host_count, 4);
    has_host(0, "n1", 5671);
    has_host(1, "::1", 7000);
    has_host(2, "fe80::1", 5671);
    has_host(3, "n1", 5671);
    assert_string_equal(url.password, "p,q");
}

TEST(test_each_mistake_names_its_host)
{
    refused("amqp://u:hunter2@n1,n2:99999/v", "host 'n2': the port must be a number from 1 to 65535");
    refused("amqp://u:hunter2@n1,n2:x/v", "host 'n2': the port");
    refused("amqp://u:hunter2@n1,,n3/v", "host 2 has no name");
    refused("amqp://u:hunter2@n1,/v", "host 2 has no name");
    refused("amqp://u:hunter2@,n1/v", "host 1 has no name");
    refused("amqp://u:hunter2@n1,:5672/v", "host 2 has no name");
    refused("amqp://u:hunter2@n1,[::1/v", "host 2: an IPv6 address is written [address]");
    refused("amqp://u:hunter2@n1, n2/v", "host 2 contains a character");
    refused("amqp://u:hunter2@n1,n%2c2/v", "host 2 contains a character");
    refused("amqp://a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q", "more than 16 hosts");
}

TEST(test_two_addresses_are_no_list)
{
    refused("amqp://u:hunter2@n1/v,amqp://u:hunter2@n2/v", "several hosts of a cluster are written in one");
    refused("amqp://u:hunter2@n1:5672,u:hunter2@n2:5672/v", "written once, before the first host");
    refused("amqp://u:hunter2@n1,amqp://n2/v", "several hosts of a cluster are written in one");
    refused("amqp://u:hunt/er2@n1,n2", "'@' behind the host");
    refused("http://u:hunter2@n1", "is not an AMQP address");
}
