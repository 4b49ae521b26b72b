#include "gateway/config/config.h"
#include "gateway/config/config_table.h"
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[64];
static char reported[8192]; /* mistakes, one a line; warnings start with "warning: " */

static void note_mistake(void *ctx, enum err_kind kind, const char *text)
{
    (void)ctx, (void)kind;
    size_t used = strlen(reported);
    snprintf(reported + used, sizeof reported - used, "%s\n", text);
}

static void note_warning(void *ctx, const char *text)
{
    char line[1000];
    snprintf(line, sizeof line, "warning: %s", text);
    note_mistake(ctx, ERR_NONE, line);
}

static const struct config_report report = {.mistake = note_mistake, .warning = note_warning};

static void write_file(const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int load(struct config *c, const char *text)
{
    struct err e;
    reported[0] = '\0';
    write_file(text);
    int result = config_load(c, path, &report, &e);
    if (result != 0)
        assert_int_equal(e.kind, ERR_CONFIG);
    return result;
}

/* Loads text, which must fail, and have this said about it. */
static void refused(const char *text, const char *said)
{
    struct config c;
    assert_int_equal(load(&c, text), -1);
    if (strstr(reported, said) == NULL)
        fail_msg("wanted \"%s\" in \"%s\"", said, reported);
}

static void accepted(const char *text)
{
    struct config c;
    assert_int_equal(load(&c, text), 0);
    config_free(&c);
}

static int clean_environment(void **state)
{
    (void)state;
    bool again = true;
    while (again) {
        again = false;
        for (char **v = environ; *v != NULL; v++) {
            char name[200];
            if (strncmp(*v, "POSTDATE_", 9) != 0)
                continue;
            snprintf(name, sizeof name, "%.*s", (int)strcspn(*v, "="), *v);
            unsetenv(name);
            again = true;
            break;
        }
    }
    snprintf(path, sizeof path, "/tmp/postdate-test-XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

TEST(test_defaults)
{
    struct config c;
    assert_int_equal(load(&c, ""), 0);
    assert_string_equal(c.postgres.url, "postgresql:///postdate");
    assert_string_equal(c.amqp.url, "amqp://guest:guest@localhost:5672/%2f");
    assert_int_equal(c.amqp.heartbeat_ms, 30000);
    assert_null(c.amqp.ca_file);
    assert_string_equal(c.intake.exchange, "postdate");
    assert_string_equal(c.intake.queue, "postdate.intake");
    assert_int_equal(c.intake.queues, 1);
    assert_int_equal(c.intake.queues_by, QUEUES_BY_RANDOM);
    assert_int_equal(c.intake.prefetch, 1000);
    assert_int_equal(c.intake.max_body, 8 << 20);
    assert_string_equal(c.delivery.exchange, "postdate.delivery");
    assert_int_equal(c.delivery.allow_count, 1);
    assert_string_equal(c.delivery.allow[0], "postdate.delivery");
    assert_int_equal(c.delivery.lead_ms, 500);
    assert_int_equal(c.delivery.max_delay_ms, INT64_C(730) * 86400000);
    assert_int_equal(c.handover.transport, TRANSPORT_AUTO);
    assert_int_equal(c.handover.what, HANDOVER_PLAIN);
    assert_int_equal(c.handover.window_ms, INT64_C(26) * 3600000);
    assert_int_equal(c.handover.min_ahead_ms, 2000);
    assert_int_equal(c.retry.attempts, 20);
    assert_int_equal(c.retry.first_ms, 1000);
    assert_int_equal(c.retry.max_ms, 600000);
    assert_int_equal(c.keys.key_memory_ms, 3600000);
    assert_int_equal(c.retention.failed_ms, INT64_C(30) * 86400000);
    assert_int_equal(c.log.level, LOG_LEVEL_INFO);
    assert_false(c.log.json);
    assert_int_equal(c.route_count, 0);
    config_free(&c);
}

/* What is not set is named by the prefix, wherever that comes from. */
TEST(test_prefix)
{
    struct config c;
    assert_int_equal(load(&c, "[intake]\nqueue=q\n[amqp]\nprefix=orders\n"), 0);
    assert_string_equal(c.amqp.prefix, "orders");
    assert_string_equal(c.intake.exchange, "orders");
    assert_string_equal(c.intake.queue, "q");
    assert_string_equal(c.delivery.exchange, "postdate.delivery");
    config_free(&c);
    setenv("POSTDATE_AMQP_PREFIX", "mail", 1);
    assert_int_equal(load(&c, "[intake]\nexchange=postdate\n[amqp]\nprefix=orders\n"), 0);
    unsetenv("POSTDATE_AMQP_PREFIX");
    assert_string_equal(c.intake.exchange, "postdate");
    assert_string_equal(c.intake.queue, "mail.intake");
    config_free(&c);
    refused("[amqp]\nprefix=a b\n", ":2: amqp.prefix: \"a b\" is no prefix of names");
    refused("[amqp]\nprefix=\n", "amqp.prefix: is empty: it needs a value (default: postdate)");
    refused("[amqp]\nprefix=orders\n[route]\norders=b\n", "already intake.exchange");
}

TEST(test_file)
{
    struct config c;
    assert_int_equal(load(&c,
                          "# comment\n[amqp]\n  url = amqps://u:p@h/v ; comment\n  heartbeat=1s\n"
                          "cert_file=/c\nkey_file=/k\n[delivery]\nallow = orders, \"\" , pay.*\nlead=PT1S\n"
                          "[route]\norders.delayed = orders\nwork=\"\"\n[log]\nformat=json\nlevel=debug\n"
                          "[http]\nlisten=[::1]:80\n[handover]\ntransport=ttl\nwindow=1d\n"),
                     0);
    assert_string_equal(c.amqp.url, "amqps://u:p@h/v");
    assert_int_equal(c.amqp.heartbeat_ms, 1000);
    assert_int_equal(c.delivery.allow_count, 3);
    assert_string_equal(c.delivery.allow[1], "");
    assert_string_equal(c.delivery.allow[2], "pay.*");
    assert_int_equal(c.delivery.lead_ms, 1000);
    assert_int_equal(c.route_count, 2);
    assert_string_equal(c.routes[0].intake_exchange, "orders.delayed");
    assert_string_equal(c.routes[0].delivery_exchange, "orders");
    assert_string_equal(c.routes[1].delivery_exchange, "");
    assert_true(c.log.json);
    assert_int_equal(c.log.level, LOG_LEVEL_DEBUG);
    assert_int_equal(c.handover.transport, TRANSPORT_TTL);
    assert_string_equal(c.source, path);
    struct accept_rules rules = config_accept_rules(&c);
    assert_int_equal(rules.route_count, 2);
    assert_int_equal(rules.allow_count, 3);
    config_free(&c);
}

TEST(test_long_line)
{
    struct config c;
    char text[2000], url[1500];
    memset(url, 'h', sizeof url - 1);
    url[sizeof url - 1] = '\0';
    memcpy(url, "postgresql://", 13);
    snprintf(text, sizeof text, "[postgres]\nurl = %s ; comment\n[intake]\nprefetch=x\n", url);
    refused(text, ":4: intake.prefetch: ");
    snprintf(text, sizeof text, "[postgres]\nurl = %s  ; comment\n", url);
    assert_int_equal(load(&c, text), 0);
    assert_string_equal(c.postgres.url, url);
    config_free(&c);
}

TEST(test_every_mistake_is_reported)
{
    refused("[amqp]\nheartbeat=1d\nnonsense\nhearbeat=5s\n[retyr]\n[log]\nlevel=loud\n",
            ":2: amqp.heartbeat: 1d is out of range: allowed are 1s to 1h\n");
    assert_non_null(strstr(reported, ":3: this line is neither"));
    assert_non_null(strstr(reported, ":4: unknown option amqp.hearbeat: did you mean amqp.heartbeat?"));
    assert_non_null(strstr(reported, ":5: unknown section [retyr]: did you mean [retry]?"));
    assert_non_null(
        strstr(reported, ":7: log.level: \"loud\" is not allowed: write one of error, warning, info, debug"));
}

TEST(test_mistakes)
{
    /* Without heartbeats nothing would notice a proxy that says nothing. */
    refused("[amqp]\nheartbeat=0\n", ":2: amqp.heartbeat: 0 is out of range: allowed are 1s to 1h\n");
    refused("x=1\n", ":1: option x stands before the first [section]");
    refused("[amqp] url=amqp://h\n", ":1: there is text behind the section [amqp]");
    refused("[intake]\nprefetch=5\nprefetch=6\n", ":3: intake.prefetch: set before, on line 2");
    refused("[intake]\nprefetch=0\n", "write a whole number from 1 to 65535");
    refused("[intake]\nmax_body=17MiB\n", "allowed are 1KiB to 16MiB");
    refused("[intake]\nexchange=\n", "intake.exchange: is empty");
    refused("[delivery]\nlead=10ms\n", "10ms is out of range: allowed are 50ms to 1m");
    refused("[delivery]\nlead=soon\n", "soon");
    refused("[delivery]\nallow=a,,b\n", "delivery.allow: is empty");
    refused("[route]\na=\n", "route.a: is empty");
    refused("[route]\na=b\na=c\n", ":3: route.a: is given twice");
    refused("[route]\na=b, later\n", ":2: route.a: \"later\" is not allowed behind the delivery exchange");
    refused("[route]\na=b, dleay=5s\n", "is not allowed behind");
    refused("[route]\na=b, delay=soon\n", "route.a: duration \"soon\"");
    refused("[route]\na=b, delay=5s, delay=6s\n", "route.a: duration ");
    refused("[route]\na=, delay=5s\n", "route.a: is empty");
    refused("[delivery]\nmax_delay=1h\n[route]\na=b, delay=2h\n",
            "route.a: the delay of 2h is longer than delivery.max_delay (1h)");
    refused("[route]\npostdate=b\n", "already intake.exchange");
    refused("[retry]\nfirst=1h\n", "retry.first");
    refused("[amqp]\ncert_file=/c\n", "belong together");
    refused("[http]\nlisten=8480\n", "host:port");
    refused("[http]\nlisten=0.0.0.0:8480\n", "http.tokens is off");
    refused("[http]\nlisten=127.example.org:8480\n", "http.tokens is off");
    refused("[http]\nlisten=[::]:8480\n", "http.tokens is off");
    accepted("[http]\nlisten=0.0.0.0:8480\ntokens=on\n");
    accepted("[http]\nlisten=0.0.0.0:8480\ninsecure_listen=on\n");
    accepted("[http]\nlisten=127.1.2.3:0\n");
    accepted("[http]\nlisten=localhost:80\n");
    accepted("[http]\nlisten=off\n");
    refused("[handover]\nwhat=some\n", "one of plain, all");
    struct config c;
    struct err e;
    assert_int_equal(config_load(&c, "/nonexistent/postdate.conf", NULL, &e), -1);
    assert_non_null(strstr(e.text, "/nonexistent/postdate.conf: cannot read"));
    assert_int_equal(e.kind, ERR_CONFIG);
}

TEST(test_a_file_that_this_user_may_not_read)
{
    struct config c;
    struct err e;
    uid_t user = geteuid();
    write_file("[log]\nlevel=debug\n");
    assert_int_equal(chmod(path, 0), 0);
    assert_int_equal(user == 0 ? seteuid(65534) : 0, 0); /* root may read all */
    reported[0] = '\0';
    int result = config_load(&c, path, &report, &e);
    assert_int_equal(user == 0 ? seteuid(user) : 0, 0);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(result, -1);
    assert_int_equal(e.kind, ERR_PERMISSION);
    assert_int_equal(err_exit_code(&e), 77);
    assert_non_null(strstr(reported, "Permission denied; run this as root, or with sudo -u postdate"));
}

TEST(test_secrets_are_not_shown)
{
    refused("[amqp]\nurl=http://u:hunter2@h\n", ":2: amqp.url: is not an AMQP address");
    assert_null(strstr(reported, "hunter2"));
    refused("[postgres]\nurl=mysql://u:hunter2@h\n", ":2: postgres.url: is not a PostgreSQL address");
    refused("[postgres]\nurl = postgresql:///hunter2 # mine\n",
            ":2: option url: '#' behind a space begins no comment");
    assert_null(strstr(reported, "hunter2"));
}

TEST(test_environment_wins)
{
    struct config c;
    setenv("POSTDATE_INTAKE_PREFETCH", "7", 1);
    setenv("POSTDATE_LOG_LEVEL", "", 1); /* empty: as if not set */
    setenv("POSTDATE_ROUTE", "a=b, c=d", 1);
    setenv("POSTDATE_PORT", "tcp://10.0.0.1:80", 1);
    setenv("POSTDATE_SERVICE_HOST", "10.0.0.1", 1);
    assert_int_equal(load(&c, "[intake]\nprefetch=5\n[route]\nx=y\n"), 0);
    assert_int_equal(c.intake.prefetch, 7);
    assert_int_equal(c.route_count, 2);
    assert_string_equal(c.routes[1].intake_exchange, "c");
    assert_non_null(strstr(reported, "warning: "));
    assert_non_null(strstr(reported, "POSTDATE_PORT"));
    assert_null(strstr(strstr(reported, "warning: ") + 1, "warning: ")); /* one in all */
    config_free(&c);
    setenv("POSTDATE_ROUTE", "a=b, delay=5s ,c=\"\",delay = 1m,d=e", 1);
    assert_int_equal(load(&c, ""), 0);
    assert_int_equal(c.route_count, 3);
    assert_string_equal(c.routes[0].delivery_exchange, "b");
    assert_int_equal(c.routes[0].delay_ms, 5000);
    assert_string_equal(c.routes[1].delivery_exchange, "");
    assert_int_equal(c.routes[1].delay_ms, 60000);
    assert_int_equal(c.routes[2].delay_ms, 0);
    config_free(&c);
    setenv("POSTDATE_INTAKE_PREFETCH", "many", 1);
    refused("", "POSTDATE_INTAKE_PREFETCH: \"many\" is not allowed");
    setenv("POSTDATE_INTAKE_PREFETCH", "7", 1);
    setenv("POSTDATE_ROUTE", "nowhere", 1);
    refused("", "POSTDATE_ROUTE: \"nowhere\"");
    setenv("POSTDATE_ROUTE", "a=b,delay=soon", 1);
    refused("", "POSTDATE_ROUTE: a: duration \"soon\"");
}

TEST(test_secret_files)
{
    struct config c;
    struct err e;
    write_file("amqp://u:p@host/v\n");
    setenv("POSTDATE_AMQP_URL_FILE", path, 1);
    assert_int_equal(config_load(&c, "/dev/null", NULL, &e), 0);
    assert_string_equal(c.amqp.url, "amqp://u:p@host/v");
    config_free(&c);
    setenv("POSTDATE_AMQP_URL", "amqp://h", 1);
    assert_int_equal(config_load(&c, "/dev/null", NULL, &e), -1);
    assert_non_null(strstr(e.text, "set only one of them"));
    unsetenv("POSTDATE_AMQP_URL");
    setenv("POSTDATE_AMQP_URL_FILE", "/nonexistent", 1);
    assert_int_equal(config_load(&c, "/dev/null", NULL, &e), -1);
    assert_non_null(strstr(e.text, "POSTDATE_AMQP_URL_FILE: cannot read /nonexistent"));
    unsetenv("POSTDATE_AMQP_URL_FILE");
    setenv("POSTDATE_LOG_LEVEL_FILE", path, 1); /* no secret */
    assert_int_equal(load(&c, ""), 0);
    assert_non_null(strstr(reported, "POSTDATE_LOG_LEVEL_FILE"));
    config_free(&c);
}

TEST(test_every_option_by_environment)
{
    for (size_t i = 0; i < option_count; i++) {
        const struct option *o = &option_table[i];
        struct config c;
        char name[OPTION_ENV_SIZE];
        if (o->optional)
            continue;
        option_env_name(o, name);
        setenv(name, o->initial, 1);
        assert_int_equal(load(&c, ""), 0);
        assert_string_equal(reported, ""); /* known: no warning */
        config_free(&c);
        assert_true(o->help != NULL && option_find(o->section, o->name) == o);
        unsetenv(name);
    }
}

TEST(test_sample_is_valid)
{
    struct config c;
    struct err e;
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    config_print_sample(f);
    fclose(f);
    reported[0] = '\0';
    assert_int_equal(config_load(&c, path, &report, &e), 0);
    assert_string_equal(reported, "");
    assert_int_equal(c.delivery.lead_ms, 500);
    config_free(&c);
}

TEST(test_a_password_that_everybody_may_read)
{
    static const char *const secret[] = {"[amqp]\nurl = amqp://u:hunter2@h/v\n",
                                         "[postgres]\nurl = postgresql://u:hunter2@h/d\n",
                                         "[postgres]\nurl = host=h password=hunter2\n"};
    static const char *const harmless[] = {"[amqp]\nurl = amqps://h:5671/v\n",
                                           "[postgres]\nurl = postgresql://u@h:1/d\n",
                                           "[postgres]\nurl = postgresql:///d?host=/a:b@c\n"};
    for (int i = 0; i < 3; i++) {
        accepted(secret[i]); /* makes the file */
        assert_int_equal(chmod(path, 0644), 0);
        accepted(secret[i]);
        assert_non_null(strstr(reported, "warning: "));
        assert_non_null(strstr(reported, "chmod o-r"));
        assert_null(strstr(reported, "hunter2"));
        assert_int_equal(chmod(path, 0640), 0);
        accepted(secret[i]);
        assert_string_equal(reported, "");
        assert_int_equal(chmod(path, 0644), 0);
        accepted(harmless[i]);
        assert_string_equal(reported, "");
    }
}

struct listed {
    char text[8192];
    struct config again;
};

static void list_option(void *ctx, const char *name, const char *value)
{
    struct listed *l = ctx;
    char section[40];
    const char *dot = strchr(name, '.');
    struct err e = {0};
    assert_non_null(dot);
    snprintf(section, sizeof section, "%.*s", (int)(dot - name), name);
    const struct option *o = option_find(section, dot + 1);
    assert_non_null(o);
    assert_int_equal(option_set(o, &l->again, value, &e), 0); /* as a user would write it */
    char back[1000];
    option_format(o, &l->again, back, sizeof back);
    assert_string_equal(back, value);
    snprintf(l->text + strlen(l->text), sizeof l->text - strlen(l->text), "%s = %s\n", name, value);
}

TEST(test_each_is_listed_but_secrets)
{
    static struct listed l;
    struct config config;
    assert_int_equal(
        load(&config, "[amqp]\nurl = amqp://u:hunter2@h/v\n[delivery]\nlead = 250ms\nallow = \"\", orders\n"
                      "[handover]\ntransport = ttl\n[intake]\nmax_body = 1MiB\n[keys]\nkey_memory = 2h\n"),
        0);
    config_each(&config, list_option, &l);
    assert_non_null(strstr(l.text, "delivery.lead = 250ms\n"));
    assert_non_null(strstr(l.text, "delivery.allow = \"\", orders\n"));
    assert_non_null(strstr(l.text, "handover.transport = ttl\n"));
    assert_non_null(strstr(l.text, "intake.max_body = 1MiB\n"));
    assert_non_null(strstr(l.text, "http.console = on\n"));
    assert_null(strstr(l.text, "hunter2"));
    assert_null(strstr(l.text, "url"));
    config_free(&l.again);
    config_free(&config);
}

TEST_EACH(clean_environment, remove_file)
