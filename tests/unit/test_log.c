/* Lines about messages: each names the first one, and a flood of them is ten lines and a number. */
#include "core/message/wire.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/rejected.h"
#include "gateway/runtime/server_status.h"
#include "tests/unit/unit.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static FILE *file;
static int old_stderr;

static int setup(void **state)
{
    (void)state;
    file = tmpfile();
    old_stderr = dup(STDERR_FILENO);
    return file && old_stderr >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0 ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    dup2(old_stderr, STDERR_FILENO);
    close(old_stderr);
    return fclose(file);
}

static const char *read_log(void)
{
    static char text[4096];
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    return text;
}

TEST(test_a_flood_is_some_lines_and_a_number)
{
    struct log_quota q = {0};
    for (int i = 0; i < 10; i++)
        assert_true(log_quota_take(&q, 500, "early", "moved"));
    assert_false(log_quota_take(&q, 500, "id-11", "moved"));
    assert_false(log_quota_take(&q, 1, "id-12", "moved"));
    assert_string_equal(read_log(), "");
    q.since_ms -= 61000;
    assert_true(log_quota_take(&q, 1, "late", "moved"));
    assert_non_null(strstr(read_log(), "501 more messages moved, the first of them id-11\n"));
    assert_null(strstr(read_log(), "late"));
    for (int i = 0; i < 9; i++)
        assert_true(log_quota_take(&q, 1, "late", "moved"));
    assert_false(log_quota_take(&q, 1, "late", "moved"));
}

/* The disk that stderr is on is full, and has room again. */
TEST(test_lines_that_could_not_be_written_are_counted)
{
    int full = open("/dev/full", O_WRONLY);
    unsigned long before = log_lost();
    assert_true(full >= 0 && dup2(full, STDERR_FILENO) >= 0);
    for (int i = 0; i < 3; i++)
        log_error("line %d", i);
    assert_int_equal(log_lost() - before, 3);
    assert_true(dup2(fileno(file), STDERR_FILENO) >= 0);
    log_error("line 4");
    log_error("line 5");
    const char *said = strstr(read_log(), "3 lines of this log could not be written\n");
    assert_non_null(said);
    assert_non_null(strstr(said, "line 4\n"));
    assert_null(strstr(strchr(said, '\n'), "could not be written"));
    assert_int_equal(log_lost() - before, 3);
    close(full);
}

static size_t count_in_log(const char *text)
{
    size_t n = 0;
    for (const char *at = read_log(); (at = strstr(at, text)) != NULL; at++)
        n++;
    return n;
}

/* It has priorities and times of its own; a file that a program between has put there has not. */
TEST(test_the_journal_is_told_priorities)
{
    char stream[48];
    struct stat st;
    assert_int_equal(fstat(STDERR_FILENO, &st), 0);
    snprintf(stream, sizeof stream, "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    assert_int_equal(setenv("JOURNAL_STREAM", stream, 1), 0);
    log_setup(LOG_LEVEL_DEBUG, false, LOG_AUDIT_CHANGES);
    log_error("a");
    log_warning("b");
    log_info("c");
    log_audit("d");
    log_debug("e");
    assert_string_equal(read_log(), "<3>error a\n<4>warn  b\n<6>info  c\n<6>info  d\n<7>debug e\n");
    log_setup(LOG_LEVEL_INFO, true, LOG_AUDIT_CHANGES);
    log_warning("in JSON");
    assert_int_equal(count_in_log("\n<4>{\"time\":\""), 1);
    assert_int_equal(setenv("JOURNAL_STREAM", "1:1", 1), 0);
    log_setup(LOG_LEVEL_INFO, false, LOG_AUDIT_CHANGES);
    log_warning("elsewhere");
    assert_int_equal(count_in_log("Z warn  elsewhere\n"), 1);
    assert_int_equal(unsetenv("JOURNAL_STREAM"), 0);
}

/* The connection that was lost is told first, whatever the next ones fail of. */
TEST(test_what_somebody_has_to_put_right_is_told_in_the_middle_of_an_outage)
{
    struct server_status w;
    struct err away = {.kind = ERR_AWAY, .text = "the connection is gone"};
    struct err files = {.kind = ERR_LIMIT, .text = "cannot connect: Too many open files"};
    server_status_open(&w, "RabbitMQ");
    for (int i = 0; i < 3; i++) {
        server_status_failed(&w, &away);
        server_status_failed(&w, &files);
    }
    assert_int_equal(count_in_log("the connection is gone; trying again"), 1);
    assert_int_equal(count_in_log("Too many open files; trying again"), 1);
    server_status_succeeded(&w);
    server_status_failed(&w, &files);
    assert_int_equal(count_in_log("Too many open files; trying again"), 2);
}

TEST(test_a_try_that_ends_just_after_it_is_back_tells_of_the_time_before)
{
    struct server_status w;
    struct err late = {.kind = ERR_AWAY, .text = "no answer in time"};
    server_status_open(&w, "RabbitMQ");
    server_status_failed(&w, &late);
    server_status_succeeded(&w);
    server_status_failed(&w, &late);
    assert_int_equal(count_in_log("no answer in time; trying again"), 1);
    assert_int_equal(server_status_away_ms(&w), 0);
    w.back_ms -= 60000; /* a minute later it is news */
    server_status_failed(&w, &late);
    assert_int_equal(count_in_log("no answer in time; trying again"), 2);
}

TEST(test_what_comes_again_is_a_line_an_hour)
{
    char more[LOG_HOURLY_SIZE];
    struct log_hourly h = {0};
    assert_true(log_hourly_take(&h, more));
    assert_string_equal(more, "");
    assert_true(log_hourly_is_fresh(&h));
    assert_false(log_hourly_take(&h, more));
    assert_false(log_hourly_take(&h, more));
    h.said_ms -= 3600000;
    assert_false(log_hourly_is_fresh(&h));
    assert_true(log_hourly_take(&h, more));
    assert_string_equal(more, " (2 more in the hour before)");
    h.said_ms -= 3600000;
    assert_true(log_hourly_take(&h, more));
    assert_string_equal(more, "");
}

TEST(test_a_quiet_minute_leaves_nothing_to_say)
{
    struct log_quota q = {0};
    assert_true(log_quota_take(&q, 1, "a", "moved"));
    q.since_ms -= 61000;
    assert_true(log_quota_take(&q, 1, "b", "moved"));
    assert_string_equal(read_log(), "");
}

/* headers: pairs of name and text. */
static void assert_name(const char *message_id, const char *const headers[][2], const char *expected)
{
    char name[REJECTED_NAME_SIZE];
    struct buf table, properties;
    struct wire_properties p = {0};
    buf_init(&table, 1000);
    buf_init(&properties, 2000);
    for (int i = 0; headers[i][0]; i++)
        wire_put_string(&table, bytes_of_str(headers[i][0]), bytes_of_str(headers[i][1]));
    p.headers = buf_bytes(&table);
    p.flags = WIRE_HEADERS;
    if (message_id) {
        p.flags |= WIRE_MESSAGE_ID;
        p.message_id = bytes_of_str(message_id);
    }
    wire_properties_write(&p, &properties);
    assert_string_equal(rejected_name(buf_bytes(&properties), name), expected);
    buf_free(&table);
    buf_free(&properties);
}

TEST(test_what_was_refused_has_the_name_that_can_be_searched)
{
    static const char *const all[][2] = {
        {"traceparent", "00-0af7-b7ad-01"}, {"x-postdate-id", "019a-1"}, {NULL, NULL}};
    static const char *const traced[][2] = {{"traceparent", "00-0af7-b7ad-01"}, {NULL, NULL}};
    static const char *const none[][2] = {{NULL, NULL}};
    char name[REJECTED_NAME_SIZE], big[300];
    assert_name("order-1", all, "x-postdate-id 019a-1");
    assert_name("order-1", traced, "message-id order-1");
    assert_name("", traced, "traceparent 00-0af7-b7ad-01");
    assert_name(NULL, none, "without an id");
    assert_string_equal(rejected_name(bytes_of("\xff", 1), name), "without an id");
    memset(big, 'x', 255);
    big[255] = '\0';
    struct buf properties;
    buf_init(&properties, 1000);
    wire_properties_write(
        &(struct wire_properties){.flags = WIRE_MESSAGE_ID, .message_id = bytes_of_str(big)}, &properties);
    assert_true(strlen(rejected_name(buf_bytes(&properties), name)) < REJECTED_NAME_SIZE);
    assert_int_equal(strncmp(name, "message-id xxx", 14), 0);
    buf_free(&properties);
}

TEST_EACH(setup, teardown)
